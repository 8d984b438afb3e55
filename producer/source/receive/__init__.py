"""Receives a member's binlog into the relay log."""
