"""One command that starts and stops everything a fresh machine needs: `manage.py devstack`.

`specs` says what runs, `local_model` which model answers locally, `children` starts and ends processes, `guard` ends
them when the supervisor is killed, `supervisor` puts them in order. Processes are named by module, never imported.
"""
