"""The scheduler once more, one iteration and one sequence at a time: the oracle of the fast loop.

It has no shortcuts: every iteration is priced by itself, every sequence counts its own tokens and blocks.
It shares no code with flopcast. Prefix caching is left out.
"""

import math
from dataclasses import dataclass


@dataclass
class Sequence:
    name: int
    prompt: int
    output: int
    after: int
    arrival: float
    generated: int = 0
    computed: int = 0  # tokens in the cache
    target: int = 0  # tokens that prefill has to compute
    reserved: int = 0
    swapped: bool = False
    ended: bool = False

    @property
    def decodes(self):
        return self.computed >= self.target > 0


def serve(requests, limits, pass_seconds):
    """First and last token of every request, preemptions, and the most blocks in use."""
    loop = PlainLoop(requests, limits, pass_seconds)
    while any(map(math.isnan, loop.last)):
        loop.iterate()
    return loop.first, loop.last, loop.preemptions, loop.largest


class PlainLoop:
    def __init__(self, requests, limits, pass_seconds):
        names = ("prompt_tokens", "output_tokens", "after", "arrival_s")
        rows = zip(*(getattr(requests, name).tolist() for name in names), strict=True)
        self.sequences = [Sequence(place, *row) for place, row in enumerate(rows)]
        self.limits, self.pass_seconds = limits, pass_seconds
        self.first = [math.nan] * requests.size
        self.last = [math.nan] * requests.size
        self.preemptions, self.largest, self.now, self.clock, self.passes = 0, 0, 0.0, 0, 0
        self.waiting, self.running, self.due, self.pending = [], [], [], []
        self.apart = limits.prefill_first or limits.static_batch
        self.waited = 0  # passes for which prompts have waited for others
        self.blind = 0  # decoding passes until the next look for requests
        self.closed = requests.concurrency > 0
        for s in self.sequences:
            if s.after < 0 and self.closed and len(self.due) == requests.concurrency:
                self.pending.append(s)
            elif s.after < 0:
                self.due.append((0.0 if self.closed else s.arrival, s))

    def blocks(self, tokens):
        return math.ceil(tokens / self.limits.block_tokens)

    def gain(self):
        return math.floor((self.passes + 1) * self.limits.yielded_tokens + 1e-9) - self.clock

    def used(self, gain=0):
        return sum(
            s.reserved or self.blocks(max(s.computed + (gain if s.decodes else 0), s.target))
            for s in self.running
        )

    def iterate(self):
        self.due.sort(key=lambda pair: (pair[0], pair[1].name))
        if self.blind == 0 or not self.running:
            self.blind = self.limits.receive_interval
            while self.due and self.due[0][0] <= self.now:
                self.waiting.append(self.due.pop(0)[1])
        if not self.running and not self.waiting:
            self.now = self.due[0][0]
            return
        before = self.preemptions
        swap = self.make_room()
        if self.preemptions == before and not (self.limits.static_batch and self.running):
            swap += self.admit()
        done = self.run_pass(swap)
        self.largest = max(self.largest, self.used())
        for s in done:
            self.end(s)
        if not self.limits.static_batch or all(s.ended for s in self.running):
            self.running = [s for s in self.running if not s.ended]

    def make_room(self):
        swap = 0.0
        while self.used(self.gain()) > self.limits.kv_blocks:
            victim = self.running.pop()
            self.preemptions += 1
            if victim.decodes and self.limits.preemption == "swap":
                victim.swapped = True
                swap += self.blocks(victim.computed) * self.limits.swap_s
            else:
                victim.computed = victim.target = 0
            self.waiting.insert(0, victim)
        return swap

    def admit(self):
        swap, limits = 0.0, self.limits
        decoding = 0 if self.apart else sum(s.decodes for s in self.running) * limits.computed_tokens
        left = sum(s.target - s.computed for s in self.running if not s.decodes)
        budget = limits.max_tokens - decoding - left
        if self.waits():
            return 0.0
        while self.waiting and len(self.running) < limits.max_sequences:
            head = self.waiting[0]
            new = 0 if head.swapped else head.prompt + head.generated
            least = 1 if limits.chunked_prefill else max(new, 1)
            want = self.blocks(head.computed + self.gain() if head.swapped else new)
            if limits.preemption == "none":
                whole = head.prompt + head.output - 1 + math.ceil(limits.yielded_tokens) - 1
                want = head.reserved = self.blocks(whole)
            spare = limits.spare_blocks if self.running else 0
            if (budget < least and not limits.static_batch) or (
                self.used(self.gain()) + want + spare > limits.kv_blocks
            ):
                break
            budget -= new
            self.waited = 0
            self.running.append(self.waiting.pop(0))
            if head.swapped:
                head.swapped = False
                swap += self.blocks(head.computed) * limits.swap_s
            else:
                head.target = new
        return swap

    def waits(self):
        limits, room = self.limits, self.limits.max_sequences - len(self.running)
        joining = self.waiting[:room]
        decoding = sum(s.decodes for s in self.running)
        if not limits.wait_passes or not joining or not 0 < decoding == len(self.running):
            return False
        tokens = [0 if s.swapped else s.prompt + s.generated for s in joining]
        full = decoding * limits.computed_tokens + sum(tokens) >= limits.wait_tokens
        if full or self.waited == limits.wait_passes:
            return False
        self.waited += 1
        return True

    def run_pass(self, swap):
        prompts = [s for s in self.running if not s.decodes]
        self.blind = 0 if prompts else self.blind - 1
        decoding = [] if prompts and self.apart else [s for s in self.running if s.decodes]
        each = self.limits.computed_tokens
        taken = self.chunks(prompts, self.limits.max_tokens - len(decoding) * each)
        work = [(s, each) for s in decoding] + taken
        self.now += swap + self.pass_seconds(
            float(sum(new for _, new in work)),
            float(len(work)),
            float(sum(s.computed + new for s, new in work)),
            float(sum(sum(range(s.computed + 1, s.computed + new + 1)) for s, new in work)),
        )
        gain = self.gain() if decoding else 0
        for s in decoding:
            s.computed += gain
            s.generated += gain
        self.passes += bool(decoding)
        self.clock += gain
        for s, new in taken:
            s.computed += new
            s.generated += s.computed == s.target
            if s.computed == s.target and s.generated == 1:
                self.first[s.name] = self.now
        return [s for s, _ in work if s.decodes and s.generated >= s.output and not s.ended]

    def chunks(self, prompts, budget):
        taken = []
        for s in prompts:
            left = s.target - s.computed
            new = min(left, budget)
            if new <= 0 or (new < left and not self.limits.chunked_prefill):
                break
            budget -= new
            taken.append((s, new))
        return taken

    def end(self, s):
        s.ended = True
        self.last[s.name] = self.now
        followers = [f for f in self.sequences if f.after == s.name]
        self.due += [(self.now + f.arrival, f) for f in followers]
        if self.closed and not followers and self.pending:
            self.due.append((self.now, self.pending.pop(0)))
