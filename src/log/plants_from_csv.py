# Prints the plants of a CSV file as JSON lines. The file is UTF-8, with commas, and its first row has
# the names of the columns: id, name and, optionally, tag. If the script fails, do not import its output.
#
#   python3 src/log/plants_from_csv.py plants.csv > plants.jsonl
import csv
import json
import re
import sys

with open(sys.argv[1], encoding='utf-8-sig', newline='') as file:
    # An unclosed quote is an error. Otherwise all rows after the quote would become a part of one name.
    for row in csv.DictReader(file, strict=True):
        plant = {'id': row['id'], 'name': row['name']}
        # Any other id stays a string. Then `import` refuses the line and prints its number.
        if re.fullmatch('-?(0|[1-9][0-9]{0,18})', row['id'] or ''):
            plant['id'] = int(row['id'])
        if row.get('tag'):
            plant['tag'] = row['tag']
        # A field without a column, such as the rest of a name that has a comma and no quotes: the
        # list makes `import` refuse the line.
        if None in row:
            plant['tag'] = [row.get('tag'), *row[None]]
        print(json.dumps(plant))
