"""The settings that make each flavour compress its binlog."""

from millrace.schemas.gtid import Flavour

COMPRESSION = {
    Flavour.MYSQL: (
        ("SET binlog_transaction_compression=ON",),
        ("SET binlog_transaction_compression=OFF",),
    ),
    Flavour.MARIADB: (
        ("SET GLOBAL log_bin_compress=ON", "SET GLOBAL log_bin_compress_min_len=10"),
        ("SET GLOBAL log_bin_compress=OFF", "SET GLOBAL log_bin_compress_min_len=256"),
    ),
}
