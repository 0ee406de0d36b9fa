#!/bin/sh
# Restores a backup of the log of systemd's service, as root:
#
#   /opt/plant-store/src/program/deploy/restore.sh /var/backups/plants.jsonl
#
# The log that the backup replaces is kept beside it, under a name that is printed. To add the plants that only this log
# has, import it as the end of "systemd" in deploy/README.md shows for plants.backup.jsonl.
#
# On a new machine, first install and start the service (deploy/README.md), and copy the old token file, which is read
# at the start after the restore:
#
#   install -m 0600 token /var/lib/plant-store/token
#   chown --reference=/var/lib/plant-store /var/lib/plant-store/token
set -eu
umask 077
backup=$1
state=/var/lib/plant-store
log=$state/plants.jsonl

node /opt/plant-store/dist/server.js verify "$backup"
systemctl stop plant-store.socket plant-store.service
replaced=$state/plants.replaced-$(date +%s).jsonl
if [ -e "$log" ]; then
  mv "$log" "$replaced"
  echo "$replaced is the log that was replaced"
fi
rm -f "$log.modified"
cp "$backup" "$log"
chown --reference="$state" "$log"
systemctl start plant-store.socket plant-store.service
