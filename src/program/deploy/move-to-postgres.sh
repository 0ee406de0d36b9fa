#!/bin/sh
# Moves the plants of the service of systemd from the log to PostgreSQL, as root:
#
#   install -d -m 0700 /etc/plant-store
#   editor /etc/plant-store/password # the password of the database
#   /opt/plant-store/src/program/deploy/move-to-postgres.sh postgres://plants@db1,db2/plants
#
# The database, its role and its table have to exist: src/postgres/README.md. The tokens stay valid, and
# are in /etc/plant-store/tokens from then on. The log stays, but is no longer backed up: back up the
# database instead. If the script fails, correct what its output names and run the script again, or
# start both units to go on with the log.
set -eu
umask 077
url=$1
program=/opt/plant-store
state=/var/lib/plant-store
secrets=/etc/plant-store
units=/etc/systemd/system

unset PLANT_STORE_FILE
export PLANT_STORE_DATABASE_URL=$url PLANT_STORE_DATABASE_PASSWORD_FILE=$secrets/password

# The service still runs. The second import adds the plants that are stored during the first.
head -n "$(wc -l < "$state/plants.jsonl")" "$state/plants.jsonl" |
  node "$program/dist/server.js" import -
systemctl stop plant-store.socket plant-store.service
node "$program/dist/server.js" import "$state/plants.jsonl"

[ -e "$secrets/tokens" ] || cp "$state/token" "$secrets/tokens"
# In a unit, %% stands for %. A backslash and & have a meaning for sed.
escaped=$(printf '%s\n' "$url" | sed 's/%/%%/g; s/[\\&|]/\\&/g')
extension=plant-store.service.d/postgres.conf
install -D -m 0644 "$program/src/program/deploy/$extension" "$units/$extension"
sed -i "s|postgres://.*|$escaped|" "$units/$extension"
rm -f /etc/cron.daily/plant-store
systemctl daemon-reload
systemctl start plant-store.socket plant-store.service
