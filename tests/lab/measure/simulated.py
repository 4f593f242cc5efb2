"""A simulated device: it runs one kernel after the other and knows the time of each, to the digit.

It has a queue as a GPU has: the host goes on while the device works. Its clock falls to half after
`HOT_S` of work without a pause of `COOL_S`, as under a power limit.
"""

from flopcast.lab.measure.timing import AbstractBench

HOT_S, COOL_S = 0.1, 0.001


class SimulatedBench(AbstractBench):
    """Host and device time advance by what is asked of them; nothing waits in reality."""

    def __init__(self, launch_s=1e-6):
        self.host_s = 0.0
        self.device_s = 0.0
        self.busy_s = 0.0
        self.launch_s = launch_s
        self.told = []
        self.gaps_s = []

    def run(self, seconds_s, name="run"):
        """Queue a kernel that takes `seconds_s` on a cool device."""
        self.told.append(name)
        self.host_s += self.launch_s
        gap_s = max(0.0, self.host_s - self.device_s)
        self.gaps_s.append(gap_s)
        if gap_s > COOL_S:
            self.busy_s = 0.0
        taken_s = seconds_s * (2.0 if self.busy_s > HOT_S else 1.0)
        self.device_s += gap_s + taken_s
        self.busy_s += taken_s

    def kernel(self, seconds_s):
        """A run of fixed length."""
        return lambda: self.run(seconds_s)

    def mark(self):
        return max(self.device_s, self.host_s)

    def wait(self, mark):
        self.host_s = max(self.host_s, mark)

    def between_s(self, first, second):
        return second - first

    def flush(self):
        self.run(50e-6, "flush")

    def idle(self, seconds_s):
        self.told.append("idle")
        self.host_s = max(self.host_s, self.device_s) + seconds_s

    def clock_s(self):
        return self.host_s
