"""Words of interactive sessions: their kinds, and what a project allows."""

EXEC, SHELL, PORT_FORWARD = "exec", "shell", "port_forward"
KINDS = (EXEC, SHELL, PORT_FORWARD)
ALLOWED, RECORDED, OFF = "allowed", "recorded", "off"  # Project.sessions
SWITCHES = (ALLOWED, RECORDED, OFF)
