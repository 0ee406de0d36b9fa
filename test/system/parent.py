"""Passes a listening socket to a program, as systemd does, and starts it again whenever it ends.

Prints the port, then the process id of each start. The program is killed when this process ends."""
import ctypes
import os
import socket
import sys

PR_SET_PDEATHSIG = 1
SIGKILL = 9

listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(4096)
print(listener.getsockname()[1], flush=True)
while True:
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
        os.dup2(listener.fileno(), 3)
        os.set_inheritable(3, True)
        variables = {**os.environ, 'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'}
        os.execvpe(sys.argv[1], sys.argv[1:], variables)
    print(child, flush=True)
    os.waitpid(child, 0)
