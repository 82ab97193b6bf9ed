"""Control of a running attempt: lease renewal, stop requests, fencing, hang detection, rendezvous."""
