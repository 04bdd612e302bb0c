"""Reductions of an extraction problem that keep its optimum.

What costs nothing and what every program needs is settled, nodes that another one beats
are dropped, a class that a single node uses is folded into it, and what is left falls
into parts that share nothing. See Goharshady, Lam and Parreaux, OOPSLA 2024.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import NamedTuple

from eqsat.egraph import Budget
from eqsat.search.extraction.problem import NO_LEAVES, Problem, components
from eqsat.support import EngineError

WIDE = 10_000
"""Classes beyond which what each needs is not worked out: the sets of all of them take
space with the square."""
MANY = 48
"""Nodes of a class beyond which they are not compared pair by pair."""
ROUNDS = 8
SHARE = 0.3
"""Part of the time that may go into rounds."""
WORTH = 0.95
"""A further round follows one that left fewer than this part of the nodes."""


class Subproblem(NamedTuple):
    """A problem of its own within a reduced one."""

    problem: Problem
    origin: list[int]
    """Number in the reduction of each node."""


class Reduction:
    """A smaller problem with the same optimum, and the way back.

    Raises :class:`EngineError` when a root cannot be computed from leaves.
    """

    def __init__(self, p: Problem, budget: Budget) -> None:
        end = budget.part(SHARE)
        self.original = p
        self.kids: list[frozenset[int]] = [frozenset(k) for k in p.kids]
        self.weight = list(p.weight)
        self.picks: list[tuple[int, ...]] = [(n,) for n in range(len(p.cls))]
        """The original nodes that each node stands for."""
        self.arity = list(map(len, p.kids))
        """Of equals, the node with the fewest needs in the original stays: ``relu(x)``
        rather than ``maximum(x, 0)``."""
        self.roots = dict.fromkeys(p.roots)
        self.settled: list[int] = []
        """Nodes that every choice takes, or may take at no price."""
        self.members = self._derivable()
        self._settle_free()
        nodes = sum(map(len, self.members))
        for _ in range(ROUNDS if end.left() else 0):
            before = nodes
            self._round()
            nodes = sum(map(len, self.members))
            if nodes > before * WORTH or not end.left():
                break

    def parts(self) -> list[Subproblem]:
        """What is left to choose, as problems that share no class."""
        group = list(range(len(self.members)))

        def find(c: int) -> int:
            while group[c] != c:
                group[c] = group[group[c]]
                c = group[c]
            return c

        alive = self._reached()
        for c in alive:
            for n in self.members[c]:
                for k in self.kids[n]:
                    group[find(k)] = find(c)
        classes: dict[int, list[int]] = {}
        for c in alive:
            classes.setdefault(find(c), []).append(c)
        return [self._part(found) for found in classes.values()]

    def lift(self, nodes: Iterable[int]) -> list[int]:
        """The original node for each class, from those chosen in the parts; -1 where
        there is none."""
        p = self.original
        best = [-1] * len(p.members)
        for n in chain(self.settled, nodes):
            for pick in self.picks[n]:
                best[p.cls[pick]] = pick
        return best

    def _part(self, classes: Sequence[int]) -> Subproblem:
        place = {c: i for i, c in enumerate(classes)}
        q = Problem([], [[] for _ in classes], [], [], [])
        origin = []
        for c in classes:
            for n in self.members[c]:
                q.add(
                    place[c],
                    tuple(sorted(place[k] for k in self.kids[n])),
                    self.weight[n],
                )
                origin.append(n)
        q.roots = [place[c] for c in classes if c in self.roots]
        return Subproblem(q, origin)

    def _derivable(self) -> list[list[int]]:
        """Nodes of each class that can be computed from leaves, but not those that
        name their own class."""
        p = self.original
        missing = [len(k) for k in p.kids]
        done = [False] * len(p.members)
        todo = [n for n, m in enumerate(missing) if m == 0]
        while todo:
            n = todo.pop()
            c = p.cls[n]
            if not done[c]:
                done[c] = True
                for user in p.parents[c]:
                    missing[user] -= 1
                    if missing[user] == 0:
                        todo.append(user)
        if not all(done[r] for r in p.roots):
            raise EngineError(NO_LEAVES)
        return [
            [n for n in members if missing[n] == 0 and c not in self.kids[n]]
            for c, members in enumerate(p.members)
        ]

    def _settle_free(self) -> None:
        """Settle classes that cost nothing; what uses them need not count them."""
        p, kids = self.original, self.kids
        todo = [
            n for m in self.members for n in m if not kids[n] and self.weight[n] == 0
        ]
        free: set[int] = set()
        while todo:
            n = todo.pop()
            c = p.cls[n]
            if c in free:
                continue
            free.add(c)
            self.settled.append(n)
            self.members[c] = []
            self.roots.pop(c, None)
            for user in p.parents[c]:
                kids[user] -= {c}
                if not kids[user] and self.weight[user] == 0:
                    todo.append(user)

    def _round(self) -> None:
        alive = self._reached()
        place = {c: i for i, c in enumerate(alive)}
        below = [
            {place[k] for n in self.members[c] for k in self.kids[n]} for c in alive
        ]
        parts = components(below)
        if len(alive) <= WIDE:
            self._use_needs(alive, place, parts)
        else:
            for c in alive:
                self.members[c] = self._unbeaten(self.members[c])
        part = [0] * len(alive)
        for i, found in enumerate(parts):
            for v in found:
                part[v] = i
        self._settle_roots({c: part[v] for v, c in enumerate(alive)})
        self._fold(self._reached())

    def _reached(self) -> list[int]:
        """The classes that the roots may need; forgets all others."""
        found = dict.fromkeys(self.roots)
        stack = list(found)
        while stack:
            for n in self.members[stack.pop()]:
                for k in self.kids[n]:
                    if k not in found:
                        found[k] = None
                        stack.append(k)
        for c, members in enumerate(self.members):
            if members and c not in found:
                self.members[c] = []
        return [c for c in found if self.members[c]]

    def _use_needs(
        self,
        alive: Sequence[int],
        place: dict[int, int],
        parts: Sequence[Sequence[int]],
    ) -> None:
        """Work out what each class needs in every program, as sets in bits, and drop
        what that rules out."""
        everything = (1 << len(alive)) - 1
        needs = [everything] * len(alive)
        for part in parts:
            changed = len(part) > 1
            while changed:
                changed = False
                for v in part:
                    common = everything
                    for n in self.members[alive[v]]:
                        mine = 0
                        for k in self.kids[n]:
                            mine |= needs[place[k]]
                        common &= mine
                    common |= 1 << v
                    changed |= common != needs[v]
                    needs[v] = common
            for v in part:
                common = self._drop(alive[v], v, place, needs)
                if len(part) == 1:
                    needs[v] = common | 1 << v
        found = 0
        for root in self.roots:
            found |= needs[place[root]]
        for v in _bits(found):
            self.roots[alive[v]] = None

    def _drop(self, c: int, v: int, place: dict[int, int], needs: Sequence[int]) -> int:
        """Drop nodes of class ``c`` that need it, or all that another one of no higher
        price names; let needs that follow from others go unsaid. What all need."""
        own = 1 << v
        entries = []
        common = -1
        for n in self.members[c]:
            direct = inner = closed = 0
            for k in self.kids[n]:
                i = place[k]
                bit = 1 << i
                direct |= bit
                closed |= needs[i]
                inner |= needs[i] ^ bit
            if closed & own:
                continue
            common &= closed
            if direct & inner:
                kids = self.kids[n]
                self.kids[n] = frozenset(k for k in kids if not inner >> place[k] & 1)
                direct &= ~inner
            entries.append((self._key(n), direct, closed))
        if len(entries) > MANY:
            self.members[c] = self._unbeaten(key[-1] for key, _, _ in entries)
            return common
        entries.sort()
        kept: list[int] = []
        named: list[int] = []
        for (*_, n), direct, closed in entries:
            for other in named:
                if other & closed == other:
                    break
            else:
                kept.append(n)
                named.append(direct)
        self.members[c] = kept
        return common

    def _key(self, n: int) -> tuple[float, int, int, int]:
        """In which order nodes of a class may beat others."""
        return self.weight[n], len(self.kids[n]), self.arity[n], n

    def _unbeaten(self, members: Iterable[int]) -> list[int]:
        """Nodes that no other node beats with fewer needs at no higher price."""
        kept: list[int] = []
        sets: set[frozenset[int]] = set()
        for n in sorted(members, key=self._key):
            if not _has_subset(sets, self.kids[n]):
                kept.append(n)
                sets.add(self.kids[n])
        return kept

    def _settle_roots(self, part: dict[int, int]) -> None:
        """Take the only node of a root, and with it what it needs; forget that other
        classes need a root, unless that may close a cycle."""
        todo = list(self.roots)
        while todo:
            c = todo.pop()
            if len(self.members[c]) == 1:
                for k in self.kids[self.members[c][0]]:
                    if k not in self.roots:
                        self.roots[k] = None
                        todo.append(k)
        roots = set(self.roots)
        for c, mine in part.items():
            for n in self.members[c]:
                if not self.kids[n].isdisjoint(roots):
                    self.kids[n] = frozenset(
                        k for k in self.kids[n] if k not in roots or part[k] == mine
                    )
        done = {
            c
            for c in roots
            if len(self.members[c]) == 1 and not self.kids[self.members[c][0]]
        }
        for c in done:
            self.settled.append(self.members[c][0])
            self.members[c] = []
            del self.roots[c]
        for members in self.members:
            for n in members:
                if not self.kids[n].isdisjoint(done):
                    self.kids[n] -= done

    def _fold(self, alive: Sequence[int]) -> None:
        """Join each class that a single node uses to that node."""
        users: dict[int, set[int]] = {c: set() for c in alive}
        owner: dict[int, int] = {}
        for c in alive:
            for n in self.members[c]:
                owner[n] = c
                for k in self.kids[n]:
                    users[k].add(n)
        todo = [c for c in alive if len(users[c]) == 1 and c not in self.roots]
        while todo:
            k = todo.pop()
            if len(users[k]) == 1:
                (n,) = users[k]
                todo.extend(self._join(n, owner[n], k, users, owner))
        for c in alive:
            self.members[c] = [n for n in self.members[c] if owner[n] >= 0]

    def _join(
        self,
        n: int,
        c: int,
        k: int,
        users: dict[int, set[int]],
        owner: dict[int, int],
    ) -> list[int]:
        """Replace node ``n`` of class ``c`` by its joins with the nodes of class ``k``,
        which nothing else uses; the classes that one node uses now. A node that is
        gone has the owner -1."""
        rest = self.kids[n] - {k}
        gone = [n, *(m for m in self.members[k] if owner[m] >= 0)]
        for m in gone[1:]:
            if c not in self.kids[m]:
                j = len(self.kids)
                self.kids.append(rest | self.kids[m])
                self.weight.append(self.weight[n] + self.weight[m])
                self.picks.append(self.picks[n] + self.picks[m])
                self.arity.append(self.arity[n] + self.arity[m])
                owner[j] = c
                self.members[c].append(j)
                for x in self.kids[j]:
                    users[x].add(j)
        owner[n] = -1
        if len(self.members[c]) <= MANY:
            before = [m for m in self.members[c] if owner[m] >= 0]
            self.members[c] = self._unbeaten(before)
            gone.extend(set(before).difference(self.members[c]))
        touched: set[int] = set()
        for m in gone:
            owner[m] = -1
            touched |= self.kids[m]
            for x in self.kids[m]:
                users[x].discard(m)
        return [x for x in touched if len(users[x]) == 1 and x not in self.roots]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _has_subset(sets: set[frozenset[int]], of: frozenset[int]) -> bool:
    """Whether one of ``sets`` lies within ``of``; looks in the cheaper of two ways."""
    if len(sets) <= 1 << len(of):
        return any(s <= of for s in sets)
    parts = (combinations(of, n) for n in range(len(of) + 1))
    return any(frozenset(part) in sets for part in chain.from_iterable(parts))
