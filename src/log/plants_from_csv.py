# Prints the plants of a CSV file as JSON lines, or none of them if the script fails. The file is
# UTF-8, with commas, and its first row names the columns: id, name and, optionally, tag.
#
#   python3 src/log/plants_from_csv.py plants.csv > plants.jsonl
#
# - An empty tag means no tag. An empty name is an empty name.
# - The member "line" is the line of the CSV file on which the row ends. `import` ignores it. Look
#   there if `import` refuses a line. A spreadsheet counts a row with line breaks as one.
# - "tag: must be a string" about a line means that its row has too many fields: a name with a
#   comma needs quotes.
import csv
import json
import re
import sys

lines = []
with open(sys.argv[1], encoding='utf-8-sig', newline='') as file:
    # An unclosed quote is an error. Otherwise all rows behind it would become a part of one name.
    rows = csv.DictReader(file, strict=True)
    try:
        columns = rows.fieldnames or []
        if not {'id', 'name'} <= {*columns}:
            sys.exit('the first row must have the columns id and name, separated by commas')
        for column in columns:
            # Perhaps it is `Tag`. Without their tags, other plants would be stored.
            if column not in ('id', 'name', 'tag') or columns.count(column) > 1:
                sys.exit(f'the column {column!r} is unknown or repeated: rename or remove it')
        for row in rows:
            plant = {'line': rows.line_num, 'id': row['id'], 'name': row['name']}
            # Any other id stays a string. Then `import` refuses the line and prints its number.
            if re.fullmatch('-?(0|[1-9][0-9]{0,18})', row['id'] or ''):
                plant['id'] = int(row['id'])
            if row.get('tag'):
                plant['tag'] = row['tag']
            # A field without a column, such as the rest of a name that has a comma and no quotes:
            # the list makes `import` refuse the line.
            if None in row:
                plant['tag'] = [row.get('tag'), *row[None]]
            lines.append(json.dumps(plant))
    except (csv.Error, ValueError) as error:
        # The next row has the error. Bytes that are not UTF-8 are somewhere in the next 8 KiB.
        sys.exit(f'{sys.argv[1]}, after line {rows.line_num}: {error}')

for line in lines:
    print(line)
# If the lines are more than the plants and the first row, there are blank lines, or a field has
# line breaks, perhaps because of a wrong quote.
print(f'{len(lines)} plants in {rows.line_num} lines', file=sys.stderr)
