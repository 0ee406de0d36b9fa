#!/bin/sh
# Moves the plants of the service of systemd from PostgreSQL to a new log, as root:
#
#   /opt/plant-store/src/program/deploy/move-to-log.sh
#
# First stop the service on all other machines that use the database. The tokens stay valid, and the
# plants stay in the database, too. An earlier log and its backup are kept under other names. If the
# script fails, correct what its output names and run the script again, or start both units to go on
# with PostgreSQL.
set -eu
umask 077
program=/opt/plant-store
state=/var/lib/plant-store
backup=/var/backups/plants.jsonl
secrets=/etc/plant-store
extension=/etc/systemd/system/plant-store.service.d/postgres.conf

log=$state/plants.jsonl
new=$state/plants.new.jsonl
exported=$state/exported.jsonl
# The password is a credential of the unit, and %% stands for % there.
url=$(sed -n 's/%%/%/g; s/^Environment=PLANT_STORE_DATABASE_URL=//p' "$extension")
unset PLANT_STORE_FILE PLANT_STORE_DATABASE_URL PLANT_STORE_DATABASE_PASSWORD_FILE

add_missing_plants() {
  PLANT_STORE_DATABASE_URL=$url PLANT_STORE_DATABASE_PASSWORD_FILE=$secrets/password \
    node "$program/dist/server.js" export > "$exported"
  PLANT_STORE_FILE=$new node "$program/dist/server.js" import "$exported"
}

mkdir -p "$state" # missing if the service has never had a log
rm -f "$new"
# The service still runs. The plants that it stores meanwhile are added once it has stopped.
add_missing_plants
systemctl stop plant-store.socket plant-store.service
add_missing_plants
rm "$exported"

replaced=replaced-$(date +%s)
[ ! -e "$log" ] || mv "$log" "$state/plants.$replaced.jsonl"
# The daily backup would miss the lines of the log that was replaced.
[ ! -e "$backup" ] || mv "$backup" "$backup.$replaced"
rm -f "$log.modified"
mv "$new" "$log"
# The token file beside the log may have tokens that are no longer valid.
install -m 0600 "$secrets/tokens" "$state/token"
chown --reference="$state" "$log" "$state/token"
install -m 0755 "$program/src/program/deploy/daily-backup.sh" /etc/cron.daily/plant-store
# From here on, a start uses the log. Tokens that stay in /etc would be used by the next move to
# PostgreSQL, even if they are no longer valid by then.
rm "$secrets/tokens" "$extension"
systemctl daemon-reload
systemctl start plant-store.socket plant-store.service
