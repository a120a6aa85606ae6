"""Shows a service the certificate of a state directory, and prints what it answers:
"accepted" once the service has sent its first frame of HTTP/2, or the error.

handshake.py STATE HOST PORT
"""

import socket
import ssl
import sys

state, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.minimum_version = ssl.TLSVersion.TLSv1_3
# The test's own services: their names don't matter here.
context.check_hostname = False
context.load_verify_locations(f"{state}/ca.pem")
context.load_cert_chain(f"{state}/identity.pem", f"{state}/key.pem")
context.set_alpn_protocols(["h2"])
try:
    with socket.create_connection((host, port), timeout=10) as tcp, context.wrap_socket(tcp) as tls:
        print("accepted" if tls.recv(9) else "closed")
except OSError as error:
    print(f"{type(error).__name__}: {error}")
