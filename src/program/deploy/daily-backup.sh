#!/bin/sh
# /etc/cron.daily/plant-store
# Prints nothing if all is well. Otherwise, prints what is wrong, and keeps the last good copy. cron mails
# the output to root, which needs a mail program, such as that of the package bsd-mailx.
# Copy the backup and the token file to another machine.
set -eu
backup=/var/backups/plants.jsonl
cp -p /var/lib/plant-store/plants.jsonl "$backup.new"
report=$(node /opt/plant-store/dist/server.js verify "$backup.new") || { echo "$report"; exit 1; }
if [ -e "$backup" ]; then
  # A log only grows. Only a partial last line, without a newline, may be cut off.
  size=$(head -n "$(wc -l < "$backup")" "$backup" | wc -c)
  if ! cmp -s -n "$size" "$backup" "$backup.new"; then
    echo "The log has lost or changed lines since the last backup: $backup.new is the new copy."
    echo "After a repair or a deletion, move $backup away. Otherwise, restore $backup."
    exit 1
  fi
fi
mv "$backup.new" "$backup"
