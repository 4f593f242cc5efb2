"""Times of messages between ranks.

`message_seconds` (collective_time.py) takes a collective, its bytes and a group of ranks, and returns the
seconds alone with the link that limits them. formulas.py has the steps and the bytes on links of each
collective; a measured curve of the fabric then gives the efficiency. collisions.py lengthens flows that
share a path of a network.

Elsewhere: conventions of message sizes (operators/messages.py), groups of ranks (cost/placement.py).
"""
