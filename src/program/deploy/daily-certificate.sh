#!/bin/sh
# /etc/cron.daily/plant-store-certificate
# Prints nothing unless the certificate that is served expires within 14 days, or none is served.
# Behind a proxy, name the proxy's address, such as 127.0.0.1:443.
address=127.0.0.1:8080
openssl s_client -connect "$address" < /dev/null 2> /dev/null |
  openssl x509 -noout -checkend $((14 * 24 * 60 * 60)) > /dev/null 2>&1 || {
  echo "$address serves no certificate, or one that expires within 14 days"
  exit 1
}
