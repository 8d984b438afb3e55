"""The compiled part of snapshots: functions of arrays, without I/O and without the GIL."""
