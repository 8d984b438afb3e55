"""Differences between the servers' character sets and Python's codecs of nearly the same name.

Source: MySQL 9.7 and MariaDB 11.4 converted every byte (sequence) of every character set to utf8mb4 and back, with
equal results. A code that comes back unchanged is a character. Any other code (undefined, or one of two codes for a
character if the server writes the other one) has no text and is carried as bytes, so that the target gets exactly the
same bytes.

    codec   Python's codec
    put     codes that the codec decodes differently or not at all: code[-last code]=code point, in hex
    drop    codes that the codec decodes but that the server does not return

Not here: the Unicode charsets (``charset``), and the 4-byte codes of gb18030, which equal Python's except for one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """A character set as a Python codec and the differences from it."""

    codec: str
    put: str = ""
    drop: str = ""


# User-defined characters of two bytes, then the same after 0x8f: 94 per row, starting at U+E000.
_EUC_PRIVATE = " ".join(
    f"{prefix + row << 8 | 0xA1:x}-{prefix + row << 8 | 0xFE:x}={first + 94 * (row - 0xF5):x}"
    for prefix, first in ((0, 0xE000), (0x8F00, 0xE3AC))
    for row in range(0xF5, 0xFF)
)

DIFFERENCES = {
    "ascii": Difference("ascii"),
    "big5": Difference(
        "big5",
        put="f9d6=7881 f9d7=92b9 f9d8=88cf f9d9=58bb f9da=6052 f9db=7ca7 f9dc=5afa",
        drop="a15a a1c3 a1c5 a1fe a240 a2cc a2ce",
    ),
    "cp1250": Difference("cp1250"),
    "cp1251": Difference("cp1251"),
    "cp1256": Difference("cp1256", drop="8a 8f 98 9a 9f aa c0 ff"),
    "cp1257": Difference("cp1257"),
    "cp850": Difference("cp850"),
    "cp852": Difference("cp852"),
    "cp866": Difference("cp866", put="fc=207f fd=b2"),
    "cp932": Difference(
        "cp932",
        drop="80 a0 fd-ff 8790-8792 8795-8797 879a-879c ed40-ed7e ed80-edfc ee40-ee7e ee80-eeec eeef-eefc "
        "fa4a-fa54 fa58-fa5b",
    ),
    "eucjpms": Difference(
        "euc_jp",
        put=(
            "a1c1=ff5e a1c2=2225 a1dd=ff0d a1f1-a1f2=ffe0 a2cc=ffe2 ada1-adb4=2460 adb5-adbe=2160 adc0=3349 adc1=3314 "
            "adc2=3322 adc3=334d adc4=3318 adc5=3327 adc6=3303 adc7=3336 adc8=3351 adc9=3357 adca=330d adcb=3326 "
            "adcc=3323 adcd=332b adce=334a adcf=333b add0-add2=339c add3-add4=338e add5=33c4 add6=33a1 addf=337b "
            "ade0=301d ade1=301f ade2=2116 ade3=33cd ade4=2121 ade5-ade9=32a4 adea-adeb=3231 adec=3239 aded=337e "
            "adee=337d adef=337c adf3=222e adf4=2211 adf8=221f adf9=22bf 8fa2c3=ffe4 8ff3f3-8ff3fc=2170 8ff4a9=ff07 "
            "8ff4aa=ff02 8ff4ae=70bb 8ff4af=4efc 8ff4b0=50f4 8ff4b1=51ec 8ff4b2=5307 8ff4b3=5324 8ff4b4=fa0e "
            "8ff4b5=548a 8ff4b6=5759 8ff4b7-8ff4b8=fa0f 8ff4b9=589e 8ff4ba=5bec 8ff4bb=5cf5 8ff4bc=5d53 8ff4bd=fa11 "
            "8ff4be=5fb7 8ff4bf=6085 8ff4c0=6120 8ff4c1=654e 8ff4c2=663b 8ff4c3=6665 8ff4c4=fa12 8ff4c5=f929 "
            "8ff4c6=6801 8ff4c7-8ff4c8=fa13 8ff4c9=6a6b 8ff4ca=6ae2 8ff4cb=6df8 8ff4cc=6df2 8ff4cd=7028 "
            "8ff4ce-8ff4cf=fa15 8ff4d0=7501 8ff4d1=7682 8ff4d2=769e 8ff4d3=fa17 8ff4d4=7930 8ff4d5-8ff4d8=fa18 "
            "8ff4d9=7ae7 8ff4da-8ff4db=fa1c 8ff4dc=7da0 8ff4dd=7dd6 8ff4de=fa1e 8ff4df=8362 8ff4e0=fa1f 8ff4e1=85b0 "
            "8ff4e2-8ff4e3=fa20 8ff4e4=8807 8ff4e5=fa22 8ff4e6=8b7f 8ff4e7=8cf4 8ff4e8=8d76 8ff4e9-8ff4eb=fa23 "
            "8ff4ec=90de 8ff4ed=fa26 8ff4ee=9115 8ff4ef-8ff4f0=fa27 8ff4f1=9592 8ff4f2=f9dc 8ff4f3=fa29 8ff4f4=973b "
            "8ff4f5=974d 8ff4f6=9751 8ff4f7-8ff4f9=fa2a 8ff4fa=999e 8ff4fb=9ad9 8ff4fc=9b72 8ff4fd=fa2d 8ff4fe=9ed1 "
            + _EUC_PRIVATE
        ),
        drop="8fa2b7 8fa2f1",
    ),
    "euckr": Difference("cp949"),
    "gb18030": Difference("gb18030", put="a8bc=1e3f 8135f437=e7c7"),
    "gb2312": Difference("gb2312"),
    "gbk": Difference("gbk"),
    "greek": Difference("iso8859_7", put="a1=2bd a2=2bc", drop="a4 a5 aa"),
    "hebrew": Difference("iso8859_8", put="af=203e"),
    "hp8": Difference("hp_roman8"),
    "koi8r": Difference("koi8_r"),
    "koi8u": Difference("koi8_u", put="95=2022"),
    "latin1": Difference("cp1252", put="81=81 8d=8d 8f-90=8f 9d=9d"),
    "latin2": Difference("iso8859_2"),
    "latin5": Difference("iso8859_9"),
    "latin7": Difference("iso8859_13"),
    "macce": Difference("mac_latin2"),
    "macroman": Difference("mac_roman"),
    "sjis": Difference("shift_jis", put="815f=5c", drop="5c"),
    "swe7": Difference(
        "ascii", put="40=c9 5b=c4 5c=d6 5d=c5 5e=dc 60=e9 7b=e4 7c=f6 7d=e5 7e=fc", drop="7f"
    ),
    "tis620": Difference("tis_620"),
    "ujis": Difference("euc_jp", put=_EUC_PRIVATE, drop="a1c0 8fa2b7"),
}

# Bytes 0x80 to 0xff of the character sets without a Python codec; U+FFFD means "no character". Below 0x80 they are
# ASCII.
UPPER_HALVES = {
    "armscii8": (
        "\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008d\u008e\u008f\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009d\u009e\u009f"
        "\u00a0❁§։��»«—�՝��՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէ"
        "ԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշ"
        "ՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’�"
    ),
    "dec8": (
        "\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008d\u008e\u008f\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009d\u009e\u009f"
        "\u00a0¡¢£�¥�§¤©ª«����°±²³�µ¶·�¹º»¼½�¿"
        "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏ�ÑÒÓÔÕÖŒØÙÚÛÜŸ�ß"
        "àáâãäåæçèéêëìíîï�ñòóôõöœøùúûüÿ��"
    ),
    "geostd8": (
        "€�‚�„…†‡�‰�‹�����‘’“”•–—���›����"
        "\u00a0¡¢£¤¥¦§¨©ª«¬\u00ad®¯°±²³´µ¶·¸¹º»¼½¾¿"
        "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწ"
        "ჭხჴჯჰჵ�����������������������№��"
    ),
    "keybcs2": (
        "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘť"
        "áíóúňŇŮÔšřŕŔ¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐"
        "└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀"
        "αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u00a0"
    ),
}
