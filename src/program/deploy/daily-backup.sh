#!/bin/sh
# /etc/cron.daily/plant-store
# Prints nothing if all is well. Otherwise, prints what is damaged, and keeps the last good copy.
set -eu
backup=/var/backups/plants.jsonl
cp -p /var/lib/plant-store/plants.jsonl "$backup.new"
report=$(node /opt/plant-store/dist/server.js verify "$backup.new") || { echo "$report"; exit 1; }
mv "$backup.new" "$backup"
