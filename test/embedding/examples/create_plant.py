# Sends a plant again until there is an answer that is not temporary. The limit of 15 seconds is for
# each read: a whole attempt can take longer if its answer trickles in.
#
# If a private authority has signed the certificate of the service, set SSL_CERT_FILE=ca.pem.
import http.client, json, ssl, time, urllib.error, urllib.request

class Refused(Exception):
    """An answer that is not temporary. `error` is None if it is the answer of a proxy."""
    def __init__(self, status, text):
        super().__init__(f'{status} {text}')
        self.status = status
        try:
            self.error = json.loads(text)['error']
        except (ValueError, TypeError, KeyError):
            self.error = None

class AnyStatus(urllib.request.HTTPErrorProcessor):
    def http_response(self, request, response):
        return response  # instead of an exception, or of following a redirect
    https_response = http_response

def create_plant(plant, token, url='http://127.0.0.1:8080/plants'):
    headers = {'Authorization': f'Bearer {token}', 'Content-Type': 'application/json'}
    request = urllib.request.Request(url, json.dumps(plant).encode(), headers)
    opener = urllib.request.build_opener(AnyStatus)
    for attempt in range(6):
        if attempt > 0:
            time.sleep(pause)
        pause = 2 ** attempt
        try:
            with opener.open(request, timeout=15) as response:
                text = response.read().decode(errors='replace')
            if response.status == 200:
                return json.loads(text)
        except http.client.InvalidURL:
            raise
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            # Refused, reset, cut off, or too slow.
            if isinstance(getattr(error, 'reason', None), ssl.CertificateError):
                raise
            continue
        if response.status not in (408, 429, 500, 502, 503, 504):
            raise Refused(response.status, text)
        after = response.headers.get('Retry-After', '')
        pause = max(pause, int(after) if after.isdecimal() else 0)
    raise TimeoutError('the plant may have been stored: send it again later')
