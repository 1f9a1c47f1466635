#!/bin/sh
# Makes the cluster if there is none yet, then becomes the server.
set -eu
[ -s "$PGDATA/PG_VERSION" ] || initdb --username=postgres --auth=trust --encoding=UTF8 --locale=C
exec "$@"
