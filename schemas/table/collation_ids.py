"""The character set of each collation id, in one table for both flavours, and the maximum width of its characters.

MySQL and MariaDB use the same ids for common collations and different ids for their own (MySQL 255 to 323 and gb18030,
MariaDB from 576), so one table serves both. Source: ``information_schema`` of MySQL 9.7 and MariaDB 11.4 (of MariaDB
``collation_character_set_applicability``, which lists the ids of the uca1400 collations for each character set). Ids
between two known ids of one character set belong to it. Not here: names and rules of collations.
"""

from types import MappingProxyType

from millrace.errors import Fatal

# character set, maximum bytes of a character, its collation ids
_TABLE = """
armscii8 1 32,64,1056,1088
ascii 1 11,65,1035,1089
big5 2 1,84,1025,1108
binary 1 63
cp1250 1 26,34,44,66,99,1050,1090
cp1251 1 14,23,50-52,1074-1075
cp1256 1 57,67,1081,1091
cp1257 1 29,58-59,1082-1083
cp850 1 4,80,1028,1104
cp852 1 40,81,1064,1105
cp866 1 36,68,1060,1092
cp932 2 95-96,1119-1120
dec8 1 3,69,1027,1093
eucjpms 3 97-98,1121-1122
euckr 2 19,85,1043,1109
gb18030 4 248-250
gb2312 2 24,86,1048,1110
gbk 2 28,87,1052,1111
geostd8 1 92-93,1116-1117
greek 1 25,70,1049,1094
hebrew 1 16,71,1040,1095
hp8 1 6,72,1030,1096
keybcs2 1 37,73,1061,1097
koi8r 1 7,74,1031,1098
koi8u 1 22,75,1046,1099
latin1 1 5,8,15,31,47-49,94,1032,1071
latin2 1 2,9,21,27,77,1033,1101
latin5 1 30,78,1054,1102
latin7 1 20,41-42,79,1065,1103
macce 1 38,43,1062,1067
macroman 1 39,53,1063,1077
sjis 2 13,88,1037,1112
swe7 1 10,82,1034,1106
tis620 1 18,89,1042,1113
ucs2 2 35,90,128-159,640-642,1059,1114,1152-1174,2560-2759
ujis 3 12,91,1036,1115
utf16 4 54-55,101-124,672-674,1078-1079,1125-1147,2816-3015
utf16le 4 56,62,1080,1086
utf32 4 60-61,160-183,736-738,1084-1085,1184-1206,3072-3271
utf8mb3 3 33,76,83,192-223,576-578,1057,1107,1216-1238,2048-2247
utf8mb4 4 45-46,224-247,255-323,608-610,1069-1070,1248-1270,2304-2503
"""


_BIN_IDS = frozenset(
    {
        *(43, 46, 47, 50, 53, 55, 58, 61, 62, 249),
        *range(64, 76),
        *range(77, 92),
        *(93, 96, 98),
    }
)
_NO_PAD_OFFSET = 1024
UTF8MB4_0900_BIN = 309


def charset_of(collation_id: int) -> str:
    """The server's name of the character set; Fatal MR-6006 for an id that neither server has."""
    charset = CHARSET_BY_COLLATION_ID.get(collation_id)
    if charset is None:
        raise Fatal("MR-6006", f"collation id {collation_id} is unknown", collation_id=collation_id)
    return charset


def character_bytes_max(charset: str) -> int:
    """The maximum bytes of a character: the factor for the length of VARCHAR(n). Fatal MR-6006."""
    width = _WIDTHS.get(charset)
    if width is None:
        raise Fatal("MR-6006", f"character set {charset!r} is unknown", charset=charset)
    return width


def exact_collation(collation_id: int) -> tuple[str, bool] | None:
    """The name of a collation that calls only the same text equal, and whether blanks at the end count as absent.

    None for any other collation. MariaDB's collations without padding have the number of the padded one plus 1024.
    Also None for UTF8MB4_0900_BIN: blanks at the end count on MySQL, and not on MariaDB, which has the name, too.
    """
    padded_id = collation_id - _NO_PAD_OFFSET
    if padded_id in _BIN_IDS:
        return f"{charset_of(padded_id)}_nopad_bin", False
    return (f"{charset_of(collation_id)}_bin", True) if collation_id in _BIN_IDS else None


def _parsed() -> tuple[dict[int, str], dict[str, int]]:
    charsets: dict[int, str] = {}
    widths: dict[str, int] = {}
    for line in _TABLE.split("\n"):
        if not line:
            continue
        charset, width, ids = line.split(" ")
        widths[charset] = int(width)
        for item in ids.split(","):
            first, _, last = item.partition("-")
            charsets.update(dict.fromkeys(range(int(first), int(last or first) + 1), charset))
    return charsets, widths


_charsets, _widths = _parsed()
CHARSET_BY_COLLATION_ID = MappingProxyType(_charsets)
_WIDTHS = MappingProxyType(_widths)
CHARSETS = tuple(sorted(_widths))
