import json, time, urllib.error, urllib.request

def create_plant(plant, token, url='http://127.0.0.1:8080/plants'):
    headers = {'Authorization': f'Bearer {token}', 'Content-Type': 'application/json'}
    request = urllib.request.Request(url, json.dumps(plant).encode(), headers)
    for attempt in range(6):
        try:
            with urllib.request.urlopen(request, timeout=15) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code not in (408, 429, 500, 503):
                raise ValueError(json.load(error)['message'])
        except OSError:
            pass  # refused, reset, or too slow
        time.sleep(2 ** attempt)
    raise TimeoutError('the plant may have been stored: send it again later')
