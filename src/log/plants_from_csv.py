# Prints the plants of a CSV file, whose first row has the names of the columns, as JSON lines:
# python3 src/log/plants_from_csv.py plants.csv > plants.jsonl
import csv
import json
import re
import sys

with open(sys.argv[1], encoding='utf-8-sig', newline='') as file:
    for row in csv.DictReader(file):
        plant = {'id': row['id'], 'name': row['name']}
        # Any other id stays a string. Then `import` refuses the line and prints its number.
        if re.fullmatch('-?[0-9]{1,19}', row['id'] or ''):
            plant['id'] = int(row['id'])
        if row['tag']:
            plant['tag'] = row['tag']
        print(json.dumps(plant))
