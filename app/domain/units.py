"""Units that several rules count in."""

WHOLE = 100  # shares of a device are counted in hundredths of it
