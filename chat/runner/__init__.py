"""The runner: asyncio code that answers turns outside any browser socket.

Embedded in the web process by default (`chat.runner.embedded`), or as `manage.py runner` processes. Same code.

    turn_start (socket) -> claim -> Runner.run_turn -> routing.engine -> EventLog -> group of the conversation (live)
                                                                               `-> TurnEvents (store, batches)
                                                        end -> turn_finish: answer + ledger, one transaction
"""
