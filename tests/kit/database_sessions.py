"""Sessions of a database server."""

import pymysql
from pymysql.constants import ER

from millrace.deploy.servers import DatabaseServer


def kill_session(server: DatabaseServer, number: object) -> bool:
    """Kill the session with this number; False if it has ended already."""
    try:
        server.execute(f"KILL {number}")
    except pymysql.Error as error:
        if error.args[0] != ER.NO_SUCH_THREAD:
            raise
        return False
    return True
