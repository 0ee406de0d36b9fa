# Sends a plant again until there is an answer that is not temporary. The limit of 15 seconds is for
# each read: a whole attempt can take longer if its answer trickles in.
#
# Save the plant with its id before the first attempt, and keep it until it is stored: with another
# id, it would be another plant. `secrets.randbits(64) - 2**63` is a random id.
#
# If a private authority has signed the certificate of the service, set SSL_CERT_FILE=ca.pem.
# A proxy in the variable http_proxy is used, except for the hosts in no_proxy.
import http.client, json, ssl, time, urllib.error, urllib.request

class Refused(Exception):
    """
    An answer that is not temporary. If `error` is 400, 409, 413 or 422, or `status` 413, the fault
    is in the plant. Otherwise, the next plant would be refused too. `error` is None in the answer
    of a proxy.
    """
    def __init__(self, status, text):
        super().__init__(f'{status} {text}')
        self.status = status
        self.error = members(text).get('error')

def members(text):
    """The members of a JSON object. Anything else, such as a proxy's page, has none."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}

class AnyStatus(urllib.request.HTTPErrorProcessor):
    def http_response(self, request, response):
        return response  # instead of an exception, or of following a redirect
    https_response = http_response

def create_plant(plant, token, url='http://127.0.0.1:8080/plants'):
    """Raises Refused, ssl.CertificateError in a URLError, or TimeoutError after six attempts."""
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
        except http.client.InvalidURL:
            raise
        except (OSError, http.client.HTTPException) as error:
            # Refused, reset, cut off, or too slow.
            if isinstance(getattr(error, 'reason', None), ssl.CertificateError):
                raise
            last = error
            continue
        # A proxy can answer 200 with a page of its own, such as a login.
        if response.status == 200 and 'name' in members(text):
            return members(text)
        last = Refused(response.status, text)
        if response.status not in (200, 408, 429, 500, 502, 503, 504):
            raise last
        after = response.headers.get('Retry-After', '')
        pause = max(pause, min(int(after), 60) if after.isdecimal() else 0)
    raise TimeoutError(f'the plant may have been stored, send it again later: {last}') from last
