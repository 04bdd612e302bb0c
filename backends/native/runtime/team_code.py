"""LLVM IR of the team: threads that run one program together.

Worker ``i`` waits at its own slot for a ticket, spins for a while and then sleeps. The
caller is thread 0. One that finds the team busy runs its program alone. A short program
calls only workers that are awake; where such calls follow one another it wakes the
others for the next one. All run alone while ``team_alone_while`` has said so.

A program is open while its caller is at work. A worker that comes later finds it
closed, and the caller waits only for those that came in.
"""

from __future__ import annotations

from ..machine import COMMON, expand
from .work_sharing_code import MOST_THREADS, SHARING

IF_AWAKE = 1 << 32
"""Added to the threads that ``team_run`` is asked for: only those that do not sleep."""
_OPEN, _CAME, _COUNT, _NUMBER = 1, 2, 0xFFFF, 17
"""Of the gate: the bit that is set while a program is open, what each worker that comes
in adds, the mask of their number, and the bit from which programs are counted. A worker
comes into each once: that it was called for the one before may reach it only now."""

_PAUSE = {
    True: "declare void @llvm.aarch64.isb(i32)\n"
    "define internal void @pause() alwaysinline {\n"
    "  call void @llvm.aarch64.isb(i32 15)\n  ret void\n}\n",
    False: "declare void @llvm.x86.sse2.pause()\n"
    "define internal void @pause() alwaysinline {\n"
    "  call void @llvm.x86.sse2.pause()\n  ret void\n}\n",
}

_TEAM = f"""
@team_busy = internal global i64 0, align 64
@team_single = internal global i64 0, align 64 ; calls that want programs to run alone
@team_size = internal global i64 0, align 64   ; workers that were started
@team_gate = internal global i64 0, align 64
@team_job = internal global [4 x i64] zeroinitializer, align 64
@team_done = internal global i64 0, align 64
@team_last = internal global i64 0, align 64   ; when a short program ended (ns)
@team_alone = internal global i64 0, align 64  ; until when such programs run alone
@team_slots = internal global [{MOST_THREADS * 256} x i8] zeroinitializer, align 256
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)

define internal void @take_part(i64 %thread) {{
  %p0 = getelementptr i64, ptr @team_job, i64 0
  %p1 = getelementptr i64, ptr @team_job, i64 1
  %p2 = getelementptr i64, ptr @team_job, i64 2
  %p3 = getelementptr i64, ptr @team_job, i64 3
  %program = load ptr, ptr %p0
  %buffers = load ptr, ptr %p1
  %threads = load i64, ptr %p2
  %turn = load i64, ptr %p3
  %called = icmp ult i64 %thread, %threads
  br i1 %called, label %run, label %end
run:
  call void %program(ptr %buffers, i64 %thread, i64 %threads, i64 %turn)
  br label %end
end:
  ret void
}}

; The next ticket of a worker that has seen %seen.
define internal i64 @next_ticket(ptr %slot, i64 %seen) {{
  %asleep = get Slot.asleep, %slot
  %mutex = get Slot.mutex, %slot
  %wake = get Slot.wake, %slot
  br label %look
look:
  %i = phi i64 [0, %0], [%i1, %wait], [0, %roused]
  %ticket = load atomic i64, ptr %slot seq_cst, align 8
  %same = icmp eq i64 %ticket, %seen
  br i1 %same, label %wait, label %end
wait:
  %i1 = add i64 %i, 1
  call void @wait_a_turn(i64 %i)
  %longer = icmp ugt i64 %i, {COMMON.turns_awake}
  br i1 %longer, label %sleep, label %look
sleep:
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i64 1, ptr %asleep seq_cst, align 8
  %now = load atomic i64, ptr %slot seq_cst, align 8
  %still = icmp eq i64 %now, %seen
  br i1 %still, label %rest, label %rise
rest:
  %w = call i32 @pthread_cond_wait(ptr %wake, ptr %mutex)
  br label %roused
roused:
  store atomic i64 0, ptr %asleep seq_cst, align 8
  %v = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %look
rise:
  store atomic i64 0, ptr %asleep seq_cst, align 8
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %end
end:
  %new = phi i64 [%ticket, %look], [%now, %rise]
  ret i64 %new
}}

define internal ptr @work(ptr %slot) {{
  %base = ptrtoint ptr @team_slots to i64
  %mine = ptrtoint ptr %slot to i64
  %offset = sub i64 %mine, %base
  %thread = lshr i64 %offset, 8
  %first = get Slot.seen, %slot
  br label %next
next:
  %seen = phi i64 [%first, %0], [%ticket, %come], [%ticket, %in]
  %served = phi i64 [0, %0], [%served, %come], [%number, %in]
  %ticket = call i64 @next_ticket(ptr %slot, i64 %seen)
  %state = load atomic i64, ptr @team_gate seq_cst, align 8
  br label %come
come:
  %old = phi i64 [%state, %next], [%now, %enter]
  %bit = and i64 %old, {_OPEN}
  %open = icmp ne i64 %bit, 0
  %number = lshr i64 %old, {_NUMBER}
  %other = icmp ne i64 %number, %served
  %wanted = and i1 %open, %other
  br i1 %wanted, label %enter, label %next
enter:
  %new = add i64 %old, {_CAME}
  %pair = cmpxchg ptr @team_gate, i64 %old, i64 %new seq_cst seq_cst
  %now = extractvalue {{ i64, i1 }} %pair, 0
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %in, label %come
in:
  call void @take_part(i64 %thread)
  %r = atomicrmw add ptr @team_done, i64 1 seq_cst
  br label %next
}}

define internal ptr @slot_of(i64 %thread) {{
  %offset = shl i64 %thread, 8
  %slot = getelementptr i8, ptr @team_slots, i64 %offset
  ret ptr %slot
}}

define internal i1 @start(i64 %thread) {{
  %id = alloca [16 x i8], align 16
  %slot = call ptr @slot_of(i64 %thread)
  %mutex = get Slot.mutex, %slot
  %wake = get Slot.wake, %slot
  %m = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr %wake, ptr null)
  %seen = getelementptr i8, ptr %slot, i64 16
  %ticket = load i64, ptr %slot
  store i64 %ticket, ptr %seen
  %failed = call i32 @pthread_create(ptr %id, ptr null, ptr @work, ptr %slot)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %detach, label %end
detach:
  %t = load ptr, ptr %id
  %d = call i32 @pthread_detach(ptr %t)
  br label %end
end:
  ret i1 %ok
}}

; Starts workers until there are enough for %threads; how many threads there can be.
; Signals go to the threads of Python.
define internal i64 @gather(i64 %threads) {{
  %all = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  %size = load i64, ptr @team_size
  %had = add i64 %size, 1
  %enough = icmp uge i64 %had, %threads
  br i1 %enough, label %there, label %mask
there:
  ret i64 %threads
mask:
  %f = call i32 @sigfillset(ptr %all)
  %b = call i32 @pthread_sigmask(i32 $set, ptr %all, ptr %old)
  br label %next
next:
  %n = phi i64 [%had, %mask], [%n1, %more]
  %full = icmp uge i64 %n, %threads
  br i1 %full, label %done, label %more
more:
  %n1 = add i64 %n, 1
  %ok = call i1 @start(i64 %n)
  br i1 %ok, label %next, label %done
done:
  %workers = sub i64 %n, 1
  store i64 %workers, ptr @team_size
  %a = call i32 @pthread_sigmask(i32 $set, ptr %old, ptr null)
  ret i64 %n
}}

define internal void @call_worker(i64 %thread) {{
  %slot = call ptr @slot_of(i64 %thread)
  %r = atomicrmw add ptr %slot, i64 1 seq_cst
  call void @rouse(ptr %slot)
  ret void
}}

; Wakes a worker that sleeps.
define internal void @rouse(ptr %slot) {{
  %asleep = get Slot.asleep, %slot
  %down = load atomic i64, ptr %asleep seq_cst, align 8
  %up = icmp eq i64 %down, 0
  br i1 %up, label %end, label %signal
signal:
  %mutex = get Slot.mutex, %slot
  %wake = get Slot.wake, %slot
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %s = call i32 @pthread_cond_signal(ptr %wake)
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %end
end:
  ret void
}}

; Calls the workers that do not sleep, which are counted, and wakes the others for the
; next program where %wakes says so.
define internal i64 @call_awake(i64 %threads, i1 %wakes) {{
  %size = load i64, ptr @team_size
  %there = add i64 %size, 1
  %n = call i64 @llvm.umin.i64(i64 %there, i64 %threads)
  br label %next
next:
  %i = phi i64 [1, %0], [%i1, %again]
  %count = phi i64 [0, %0], [%more, %again]
  %done = icmp uge i64 %i, %n
  br i1 %done, label %end, label %one
one:
  %slot = call ptr @slot_of(i64 %i)
  %asleep = get Slot.asleep, %slot
  %down = load atomic i64, ptr %asleep seq_cst, align 8
  %up = icmp eq i64 %down, 0
  br i1 %up, label %call, label %sleeps
call:
  %r = atomicrmw add ptr %slot, i64 1 seq_cst
  br label %again
sleeps:
  br i1 %wakes, label %wake, label %again
wake:
  call void @rouse(ptr %slot)
  br label %again
again:
  %plus = zext i1 %up to i64
  %more = add i64 %count, %plus
  %i1 = add i64 %i, 1
  br label %next
end:
  ret i64 %count
}}

define internal i64 @now_ns() {{
  %time = alloca [2 x i64]
  %r = call i32 @clock_gettime(i32 $monotonic, ptr %time)
  %p = getelementptr i64, ptr %time, i64 1
  %s = load i64, ptr %time
  %ns = load i64, ptr %p
  %whole = mul i64 %s, 1000000000
  %now = add i64 %whole, %ns
  ret i64 %now
}}

; Lets workers into a program for %threads.
define internal void @open(ptr %program, ptr %buffers, i64 %threads) {{
  %p1 = getelementptr i64, ptr @team_job, i64 1
  %p2 = getelementptr i64, ptr @team_job, i64 2
  %p3 = getelementptr i64, ptr @team_job, i64 3
  %turn = load i64, ptr @next_turn
  store ptr %program, ptr @team_job
  store ptr %buffers, ptr %p1
  store i64 %threads, ptr %p2
  store i64 %turn, ptr %p3
  store atomic i64 0, ptr @team_done seq_cst, align 8
  %last = load i64, ptr @team_gate
  %number = or i64 %last, {_CAME * _COUNT}
  %next = add i64 %number, {_CAME + _OPEN}
  store atomic i64 %next, ptr @team_gate seq_cst, align 8
  ret void
}}

; Lets nobody in any more, and waits for those that are in.
define internal void @close() {{
  %last = atomicrmw sub ptr @team_gate, i64 {_OPEN} seq_cst
  %numbers = lshr i64 %last, 1
  %came = and i64 %numbers, {_COUNT}
  call void @wait_until(ptr @team_done, i64 %came)
  ret void
}}

; Runs a program on up to %asked threads, this one among them.
define void @team_run(ptr %program, ptr %buffers, i64 %asked) {{
  %threads = and i64 %asked, {IF_AWAKE - 1}
  %any = icmp eq i64 %threads, %asked
  %many = icmp ugt i64 %threads, 1
  br i1 %many, label %ask, label %alone
ask:
  %single = load atomic i64, ptr @team_single seq_cst, align 8
  %free = icmp eq i64 %single, 0
  br i1 %free, label %take, label %alone
take:
  %most = call i64 @llvm.umin.i64(i64 %threads, i64 {MOST_THREADS})
  %taken = cmpxchg ptr @team_busy, i64 0, i64 1 seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %mine, label %choose, label %alone
alone:
  call void %program(ptr %buffers, i64 0, i64 1, i64 0)
  ret void
choose:
  br i1 %any, label %long, label %short
long:
  %n = call i64 @gather(i64 %most)
  call void @open(ptr %program, ptr %buffers, i64 %n)
  br label %next
next:
  %i = phi i64 [1, %long], [%i1, %one]
  %called = icmp uge i64 %i, %n
  br i1 %called, label %work, label %one
one:
  call void @call_worker(i64 %i)
  %i1 = add i64 %i, 1
  br label %next
work:
  call void @take_part(i64 0)
  call void @close()
  br label %end
short:
  %begun = call i64 @now_ns()
  %until = load atomic i64, ptr @team_alone monotonic, align 8
  %calm = icmp uge i64 %begun, %until
  br i1 %calm, label %look, label %leave
look:
  %last = load atomic i64, ptr @team_last monotonic, align 8
  %since = sub i64 %begun, %last
  %soon = icmp ult i64 %since, {COMMON.soon_ns}
  br i1 %soon, label %start, label %invite
start:
  %g = call i64 @gather(i64 %most)
  br label %invite
invite:
  call void @open(ptr %program, ptr %buffers, i64 %most)
  %guests = call i64 @call_awake(i64 %most, i1 %soon)
  %none = icmp eq i64 %guests, 0
  br i1 %none, label %shut, label %together
shut:
  call void @close()
  br label %leave
leave:
  call void %program(ptr %buffers, i64 0, i64 1, i64 0)
  %ended = call i64 @now_ns()
  store atomic i64 %ended, ptr @team_last monotonic, align 8
  br label %end
together:
  call void @take_part(i64 0)
  %ready = call i64 @now_ns()
  call void @close()
  %now = call i64 @now_ns()
  store atomic i64 %now, ptr @team_last monotonic, align 8
  %waited = sub i64 %now, %ready
  %late = icmp ugt i64 %waited, {COMMON.late_ns}
  br i1 %late, label %shun, label %end
shun:
  %while = mul i64 %waited, {COMMON.times_alone}
  %later = add i64 %now, %while
  store atomic i64 %later, ptr @team_alone monotonic, align 8
  br label %end
end:
  store atomic i64 0, ptr @team_busy seq_cst, align 8
  ret void
}}

; Programs run alone from now on, while the sum of all %change is not 0.
define void @team_alone_while(i64 %change) {{
  %r = atomicrmw add ptr @team_single, i64 %change seq_cst
  ret void
}}

; In the child of a fork: no worker is there.
define void @team_forget() {{
  store atomic i64 0, ptr @team_single seq_cst, align 8
  store i64 0, ptr @team_size
  store i64 0, ptr @team_gate
  call void @turns_forget()
  store atomic i64 0, ptr @team_busy seq_cst, align 8
  br label %next
next:
  %i = phi i64 [0, %0], [%i1, %next]
  %slot = call ptr @slot_of(i64 %i)
  %asleep = get Slot.asleep, %slot
  store i64 0, ptr %asleep
  %i1 = add i64 %i, 1
  %done = icmp eq i64 %i1, {MOST_THREADS}
  br i1 %done, label %end, label %next
end:
  ret void
}}

define i64 @team_workers() {{
  %n = load i64, ptr @team_size
  ret i64 %n
}}
declare i64 @llvm.umin.i64(i64, i64)
"""


def team_ir(is_arm: bool, is_mac: bool) -> str:
    """The team for a processor and a system."""
    text = _TEAM.replace("$set", "3" if is_mac else "2")  # SIG_SETMASK
    text = text.replace("$monotonic", "6" if is_mac else "1")  # CLOCK_MONOTONIC
    return expand(_PAUSE[is_arm] + SHARING + text)
