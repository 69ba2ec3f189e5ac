/* The directory harbour as a model, checked by spin. README.md beside this file explains how to run and read it.
 *
 * Clients arrive one after the other, wait, hold GPUs and end. Each has one ticket and one ID; a client that comes again is another
 * client. What a client does under the harbour's lock is one atomic step here, except that it can be killed in the middle of it.
 * Time passes in ticks, and only when no honest client that is awake has anything to do: the timers of the protocol (1 s, 3.5 s) are long
 * beside the time that an honest client needs to react. The audit (30 to 60 s) is left out, since it would hide a lost wake-up.
 *
 * Labels such as [R5] refer to the table in README.md. Each switch named BROKEN_... takes one rule away; spin then reports an error.
 */

#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef GPUS
#define GPUS 2
#endif
#ifndef STOPS
#define STOPS 1 /* how often a client may be stopped (SIGSTOP, a frozen container) */
#endif
#ifndef HOSTILE
#define HOSTILE 1 /* 1: any client may be a hostile user's: its ticket never claims unless it likes to */
#endif
#ifndef USERS
#define USERS 2 /* honest users; a user in another PID namespace counts as another one */
#endif
#ifndef OLD_SNAPSHOTS
#define OLD_SNAPSHOTS 0 /* how many decisions are made after so long a wait for the lock that the snapshot of the GPUs is old */
#endif
#ifndef WAIT_LIMIT
#define WAIT_LIMIT (1 + PATIENCE + CLIENTS + OLD_SNAPSHOTS)
#endif

#define PATIENCE 2 /* ticks from a note until its ticket is silent, plus its rank: 3.5 s + 0.2 s x rank */
#ifndef NEAR
#define NEAR 2     /* that many awake tickets at the front watch every lease */
#endif

#define SLOTS (CLIENTS + GPUS) /* clients, then the leases that were there before them */
#define NONE 255
#define ALL_GPUS ((1 << GPUS) - 1)
#define bit(n) (1 << (n))

/* ---- The directory and the bells --------------------------------------------------------------------------------------------- */

bool bell[SLOTS];    /* a process has the reading end of bell-ID open */
bool rung[CLIENTS];  /* a byte lies in bell-ID */
bool ticket[CLIENTS]; /* ticket-N-ID is there */
byte lease[SLOTS];   /* lease-ID is there and holds these GPUs; 0: there is none */
byte queue[CLIENTS]; /* the tickets by order key; NONE behind the last */
byte key[CLIENTS];   /* the order key of a ticket */

/* A lease file that a reader may misjudge: its record cannot be read; names another uid than the file's owner (a user namespace); its
 * bell may not be opened (an ACL); another user tries to end it. Only the lease in slot ODD_LEASE can be one. */
mtype = { plain, unreadable, other_uid, denied_bell, ended_by_other };
mtype oddity = plain;
#define ODD_LEASE CLIENTS

#ifdef NESTED
/* Slot OUTER is the lease of a user's shell on GPU 0, slot INNER a job's lease within it. If the outer one ends first, a hostile user
 * may make a lease with its ID. */
#define OUTER CLIENTS
#define INNER (CLIENTS + 1)
bool outer_is_hostile;
#endif

#ifdef PLANTED
bool planted[CLIENTS]; /* a hostile user made a file with the name of this client's future lease */
#endif

/* ---- The clients, in their own memory ------------------------------------------------------------------------------------------ */

#define HOSTILE_USER 0
byte user[CLIENTS];    /* HOSTILE_USER, or the honest user and PID namespace of the client, from 1 */
byte count[CLIENTS];   /* its request: that many GPUs ... */
byte choice[CLIENTS];  /* ... of these */
bool runs[CLIENTS];    /* its process is there; if not, another process may still keep the bell open */
bool stopped[CLIENTS]; /* its process is stopped */
bool event[CLIENTS];   /* poll() reports that a watched bell has no reader any more */
byte watch[CLIENTS];   /* bells whose writing end it polls (bits of slots) */
bool late[CLIENTS];    /* it looks at the end of a lease a tick later (see "Waiting") */

/* Timers: 0: off; 1: due; n + 1: due in n ticks. */
byte look[CLIENTS];    /* decide again, since a ticket before it has not claimed */
byte late_look[CLIENTS];
byte tell[CLIENTS];    /* ring the second ticket, which then watches as well */
byte told[CLIENTS];    /* the ticket that is rung then */
typedef Opinions {
  byte note[CLIENTS];   /* 0, or 1 + ticks since it noted that this ticket has not claimed */
  byte rank[CLIENTS];   /* the rank of that ticket then */
  bool silent[CLIENTS]; /* tickets that this client passes over */
  byte unclaimed;       /* tickets (bits) that were granted and had not claimed at its last decision */
}
Opinions view[CLIENTS];

/* ---- What only the checker knows -------------------------------------------------------------------------------------------- */

byte arrived = 0;
byte stops_left = STOPS;
byte old_snapshots_left = OLD_SNAPSHOTS;
bool has_old_snapshot = false; /* the deciding client */
bool was_stopped[CLIENTS];
byte seen[CLIENTS];    /* leases that a client with notes saw in its last decision (bits) */
bool misled[CLIENTS];  /* a lease came and ended while this client had notes, and it has seen neither */
/* A client may find an honest ticket silent if it was misled so, or if only one of the two knows that a ticket is stopped. */
#define may_err(c) (misled[c] || stops_left < STOPS)
byte owed[CLIENTS];    /* tickets (bits) that this client had noted when a client behind them claimed */
byte waits[CLIENTS];   /* ticks for which an honest ticket could be granted, and is not */
byte killed_at = 0;    /* 0, or the point of a decision at which its process is killed */
bool bell_kept = false; /* another process (a keeper, a child) has the bell of the killed process open */

/* Scratch variables of one atomic step. */
hidden byte i, j, t, u, n, room, open_gpus, unheld, mine, won, winners, skipped, sleepers, taken, faulty, before, could, rank;
hidden byte awake_before, own_before, reserver, nearest, second_nearest, two;
hidden byte found, was_rung, was_due, overtaken, remaining;

/* ---- Reading the directory: what counts ------------------------------------------------------------------------------------------ */

/* [R1] A record counts only while its bell has a reader. [R2] Unknown is not free: a bell that may not be opened counts as alive; a lease that
 * cannot be understood holds every GPU; the "uid" in a record decides nothing. */
#define is_odd(s, kind) ((s) == ODD_LEASE && oddity == kind)
#ifdef BROKEN_COUNT_DEAD_BELLS
#define alive(s) true
#elif defined(BROKEN_DENIED_BELL_IS_DEAD)
#define alive(s) (bell[s] && !is_odd(s, denied_bell))
#else
#define alive(s) (bell[s] || is_odd(s, denied_bell))
#endif
#ifdef BROKEN_TRUST_THE_RECORDS_UID
#define is_read(s) (!is_odd(s, other_uid))
#elif defined(BROKEN_IGNORE_UNREADABLE_LEASE)
#define is_read(s) (!is_odd(s, unreadable))
#elif defined(BROKEN_ANYBODY_MAY_END)
#define is_read(s) (!is_odd(s, ended_by_other))
#else
#define is_read(s) true
#endif
#define held_by(s) (is_odd(s, unreadable) -> ALL_GPUS : lease[s])
#define has_lease(s) (lease[s] != 0 && alive(s) && is_read(s))

/* [R3] A ticket beside a lease of the same ID that counts does not; a file with the name of a lease says nothing by itself. */
#if defined(PLANTED) && defined(BROKEN_EXISTENCE_COUNTS)
#define has_ticket(c) (ticket[c] && alive(c) && !has_lease(c) && !planted[c])
#else
#define has_ticket(c) (ticket[c] && alive(c) && !has_lease(c))
#endif

/* [R4] An inner lease takes up nothing only if its outer lease counts, has the same owner, and has all its GPUs. */
#ifdef NESTED
#ifdef BROKEN_ANY_OUTER_LEASE
#define is_within(s) ((s) == INNER && has_lease(OUTER))
#else
#define is_within(s) ((s) == INNER && has_lease(OUTER) && !outer_is_hostile && (lease[INNER] & ~lease[OUTER]) == 0)
#endif
#else
#define is_within(s) false
#endif

/* Sets unheld to the GPUs that no lease holds. */
inline read_leases() {
  unheld = ALL_GPUS;
  for (i : 0 .. SLOTS - 1) {
    if
    :: has_lease(i) && !is_within(i) -> unheld = unheld & ~held_by(i)
    :: else
    fi
  }
}

/* Sets n to the number of GPUs in a set, and mine to the first wanted of them. */
inline pick(set, wanted) {
  n = 0; mine = 0;
  for (j : 0 .. GPUS - 1) {
    if
    :: ((set) & bit(j)) != 0 ->
       if
       :: n < (wanted) -> mine = mine | bit(j)
       :: else
       fi;
       n++
    :: else
    fi
  }
}

/* [R5] The decision, ticket by ticket in the order of the queue: a ticket that could have its GPUs is granted them; the first that could not
 * reserves. Sets won to the tickets that are granted, skipped to those that are passed over and
 * would be, reserver to the one that reserves, and room to the GPUs of the client viewer if
 * that is granted. passed_over and takes_nothing are conditions on a ticket t. */
inline walk(viewer, passed_over, takes_nothing) {
  open_gpus = unheld; won = 0; skipped = 0; room = 0; reserver = NONE;
  for (i : 0 .. CLIENTS - 1) {
    t = queue[i];
    if
    :: t == NONE -> break
    :: else
    fi;
    if
    :: has_ticket(t) ->
       pick(open_gpus & choice[t], count[t]);
       if
       :: n >= count[t] && (passed_over) -> skipped = skipped | bit(t)
       :: n >= count[t] && !(passed_over) ->
          won = won | bit(t);
          if
          :: t == (viewer) -> room = mine
          :: else
          fi;
          if
          :: !(takes_nothing) -> open_gpus = open_gpus & ~mine
          :: else
          fi
       :: n < count[t] && !(passed_over) && reserver == NONE ->
          reserver = t;
#ifndef BROKEN_NO_RESERVATION
          open_gpus = open_gpus & ~choice[t]
#endif
       :: else
       fi
    :: else
    fi
  }
}

/* [R6] A stopped ticket is passed over (a client sees the state of processes of its own user and PID namespace), and so is one that the client
 * has found silent. */
#ifdef BROKEN_NEVER_PASS_OVER
#define passes(c, t) false
#else
#define passes(c, t) (view[c].silent[t] || (stopped[t] && user[t] == user[c]))
#endif

/* Sets before to the tickets that stand before client c. */
inline find_before(c) {
  before = 0;
  for (i : 0 .. CLIENTS - 1) {
    t = queue[i];
    if
    :: t == NONE || t == c -> break
    :: else
    fi;
    if
    :: has_ticket(t) -> before = before | bit(t)
    :: else
    fi
  }
}

/* When a client has something to do. */
#define wakes(c) (rung[c] || event[c] || look[c] == 1 || late_look[c] == 1)
#define can_act(c) (bell[c] && ticket[c] && lease[c] == 0 && runs[c] && !stopped[c])
#define must_act(c) (can_act(c) && user[c] != HOSTILE_USER && (wakes(c) || tell[c] == 1))
#if CLIENTS == 2
#define has_notes(c) (view[c].note[0] != 0 || view[c].note[1] != 0)
#define a_client_must_act (must_act(0) || must_act(1))
#define settled (!a_client_must_act && tell[0] == 0 && tell[1] == 0)
#elif CLIENTS == 3
#define has_notes(c) (view[c].note[0] != 0 || view[c].note[1] != 0 || view[c].note[2] != 0)
#define a_client_must_act (must_act(0) || must_act(1) || must_act(2))
#define settled (!a_client_must_act && tell[0] == 0 && tell[1] == 0 && tell[2] == 0)
#elif CLIENTS == 4
#define has_notes(c) (view[c].note[0] != 0 || view[c].note[1] != 0 || view[c].note[2] != 0 || view[c].note[3] != 0)
#define a_client_must_act (must_act(0) || must_act(1) || must_act(2) || must_act(3))
#define settled (!a_client_must_act && tell[0] == 0 && tell[1] == 0 && tell[2] == 0 && tell[3] == 0)
#else
#error "CLIENTS must be 2, 3 or 4"
#endif

/* ---- Ringing, and the end of a bell --------------------------------------------------------------------------------------------- */

inline ring(c) { printf("      rings client %d\n", c); rung[c] = true }

/* The checker counts how long a ticket waits since the last end, stop or arrival. */
inline restart_waits() {
  for (j : 0 .. CLIENTS - 1) {
    waits[j] = 0
  }
}

/* [R7] A bell whose last reader is gone is reported to every client that watches it. */
inline end_of_bell(s) {
  restart_waits();
  bell[s] = false;
  for (j : 0 .. CLIENTS - 1) {
    misled[j] = misled[j] || (lease[s] != 0 && (seen[j] & bit(s)) == 0 && has_notes(j));
    if
    :: (watch[j] & bit(s)) != 0 ->
       watch[j] = watch[j] & ~bit(s);
       if
       :: late[j] && lease[s] != 0 ->
          if
          :: late_look[j] == 0 -> late_look[j] = 2
          :: else
          fi
       :: else -> event[j] = true
       fi
    :: else
    fi
  }
}

inline forget_waiting(c) {
  rung[c] = false; event[c] = false; watch[c] = 0; late[c] = false; look[c] = 0; late_look[c] = 0; tell[c] = 0; told[c] = 0;
  waits[c] = 0; misled[c] = false; seen[c] = 0; owed[c] = 0;
  view[c].unclaimed = 0;
  for (j : 0 .. CLIENTS - 1) {
    view[c].note[j] = 0; view[c].rank[j] = 0; view[c].silent[j] = false
  }
}

/* Nothing of a client remains; its files count for nothing. */
inline end_of_client(c) {
  printf("client %d ends\n", c);
  forget_waiting(c);
  end_of_bell(c);
  runs[c] = false; stopped[c] = false;
#ifndef BROKEN_COUNT_DEAD_BELLS
  ticket[c] = false; lease[c] = 0;
#endif
  for (j : 0 .. CLIENTS - 1) {
    view[j].silent[c] = false; owed[j] = owed[j] & ~bit(c)
  }
}

/* The process is killed, with its bell or while another process keeps that open. */
inline killed(c) {
  if
  :: bell_kept -> printf("      client %d is killed; its bell is kept open\n", c); restart_waits(); forget_waiting(c); runs[c] = false
  :: else -> end_of_client(c)
  fi
}

/* ---- Claiming ---------------------------------------------------------------------------------------------------------------- */

/* [R8] Before it commits, a claimer rings the tickets before it that watch all leases and do not know the new one: those with fewer than two
 * awake tickets of their own user and PID namespace before them. Behind it, it rings the next ticket of its own user and namespace that is
 * awake (stopped ones on the way), since that relied on the claimer. */
#ifdef BROKEN_CHAIN_THROUGH_OTHER_USERS
#define may_rely(t, c) true
#else
#define may_rely(t, c) (user[t] == user[c])
#endif
inline ring_for_claim(c) {
  awake_before = 0;
  u = 0; two = 0;    /* users of whom one, two tickets are awake before t (bits) */
  found = false;     /* the place of c is reached */
  for (i : 0 .. CLIENTS - 1) {
    t = queue[i];
    if
    :: t == NONE -> break
    :: t == c -> found = true
    :: t != c && t != NONE && has_ticket(t) && !found ->
#ifndef BROKEN_NO_RING_TO_WATCHERS
       if
       :: ((NEAR > 1 -> two : u) & bit(user[t])) == 0 -> ring(t)
       :: else
       fi;
#endif
       if
       :: !passes(c, t) -> awake_before++; two = two | (u & bit(user[t])); u = u | bit(user[t])
       :: else
       fi
    :: t != c && t != NONE && has_ticket(t) && found && may_rely(t, c) ->
#ifndef BROKEN_NO_RING_BEHIND
       ring(t);
#endif
       if
       :: !passes(c, t) -> break
       :: else
       fi
    :: else
    fi
  }
}

/* [R10] Tickets that are granted are rung: each claims for itself. So are those that would be if they were not passed over: a stopped client reads
 * the ring when it continues. */
inline ring_winners(c) {
#ifdef BROKEN_NO_RING_TO_STOPPED
  skipped = 0;
#endif
#ifdef BROKEN_NO_RING_TO_WINNERS
  won = 0;
#endif
  for (j : 0 .. CLIENTS - 1) {
    if
    :: j != c && ((won | skipped) & bit(j)) != 0 -> ring(j)
    :: else
    fi
  }
}

#define is_faulty(t) (user[t] == HOSTILE_USER || !runs[t] || stopped[t])

/* What must hold when client c takes the GPUs in room. */
inline check_claim(c) {
  taken = room; winners = won; sleepers = skipped;
  /* No double grant: no living lease has one of these GPUs. */
  for (i : 0 .. SLOTS - 1) {
    assert(!(i != c && bell[i] && (lease[i] & taken) != 0))
  }
  if
  :: user[c] != HOSTILE_USER ->
     find_before(c);
     faulty = 0;
     for (j : 0 .. CLIENTS - 1) {
       if
       :: is_faulty(j) || was_stopped[j] -> faulty = faulty | bit(j)
       :: else
       fi
     }
     /* Order: what an honest ticket before c could be granted, in its own view, it still can be. */
     for (u : 0 .. CLIENTS - 1) {
       if
       :: (before & bit(u)) != 0 && (faulty & bit(u)) == 0 ->
          walk(u, t != u && passes(u, t), (faulty & bit(t)) != 0);
          /* The first ticket that must wait is not delayed by one behind it. */
          assert(!((before & faulty) == 0 && reserver == u && (taken & choice[u]) != 0));
          could = won;
          unheld = unheld & ~taken;
          walk(u, t != u && (passes(u, t) || (faulty & could & bit(t)) != 0), false);
          assert((could & ~won & bit(u)) == 0 || (view[c].silent[u] && may_err(c)));
          unheld = unheld | taken
       :: else
       fi
     }
  :: else
  fi;
  won = winners; skipped = sleepers; room = taken
}

/* [R9] Client c is granted the GPUs in room: ring, then commit, then remove the ticket. */
inline claim(c) {
  check_claim(c);
#ifndef BROKEN_COMMIT_BEFORE_RING
  ring_for_claim(c);
#endif
  if
  :: killed_at == 2 -> killed(c)
  :: else ->
#ifdef PLANTED
     /* [R17] The name of the lease is taken: the client makes a bell with a new ID and removes the old one. */
#ifdef BROKEN_GIVE_UP_A_TAKEN_NAME
     if
     :: planted[c] -> room = 0
     :: else
     fi;
#else
     if
     :: planted[c] -> end_of_bell(c); bell[c] = true; planted[c] = false
     :: else
     fi;
#endif
#endif
     lease[c] = room;
     for (u : 0 .. CLIENTS - 1) {
       for (j : 0 .. CLIENTS - 1) {
         owed[u] = owed[u] | ((u != c && view[u].note[j] != 0 && key[j] < key[c]) -> bit(j) : 0)
       }
     }
     restart_waits();
     printf("      client %d claims GPUs %d (bits)\n", c, room);
     if
     :: killed_at == 3 -> killed(c)
     :: else ->
        ticket[c] = (room == 0);
#ifdef BROKEN_COMMIT_BEFORE_RING
        ring_for_claim(c);
#endif
        if
        :: killed_at != 4 -> ring_winners(c)
        :: else
        fi;
        forget_waiting(c);
        for (j : 0 .. CLIENTS - 1) {
          view[j].silent[c] = false; owed[j] = owed[j] & ~bit(c)
        }
        if
        :: killed_at == 4 -> killed(c)
        :: else
        fi
     fi
  fi
}

/* ---- Waiting ------------------------------------------------------------------------------------------------------------------ */

/* [R11] What a waiter watches: the nearest two tickets of its own user and PID namespace before it. Unless two of those before it are awake, also
 * every lease, the ticket that reserves, and the tickets before it that it passes over (which may become leases). It decides at once when a
 * lease ends if fewer than two awake tickets of any user stand before it, else a tick later. */
inline watch_bells(c) {
  awake_before = 0; own_before = 0; nearest = NONE; second_nearest = NONE;
  for (i : 0 .. CLIENTS - 1) {
    t = queue[i];
    if
    :: t == NONE || t == c -> break
    :: else
    fi;
    if
    :: has_ticket(t) ->
       if
       :: may_rely(c, t) -> second_nearest = nearest; nearest = t
       :: else
       fi;
       if
       :: !passes(c, t) ->
          awake_before++;
          if
          :: user[t] == user[c] -> own_before++
          :: else
          fi
       :: else
       fi
    :: else
    fi
  }
  watch[c] = 0; late[c] = false; late_look[c] = 0;
  if
#ifndef BROKEN_NO_WATCH_OF_PREDECESSOR
  :: nearest != NONE -> watch[c] = bit(nearest)
#endif
  :: else
  fi;
#if NEAR > 1 && !defined(BROKEN_WATCH_ONE_PREDECESSOR) && !defined(BROKEN_NO_WATCH_OF_PREDECESSOR)
  if
  :: second_nearest != NONE -> watch[c] = watch[c] | bit(second_nearest)
  :: else
  fi;
#endif
#ifdef BROKEN_TRUST_OTHERS_TO_WATCH
  own_before = awake_before;
#endif
#ifdef BROKEN_RELY_ON_ONE_TICKET
#define RELIED_ON 1
#else
#define RELIED_ON NEAR
#endif
  if
  :: awake_before < NEAR || own_before < RELIED_ON ->
     late[c] = (awake_before >= NEAR);
     for (i : 0 .. SLOTS - 1) {
       if
       :: has_lease(i) && i != c && !is_odd(i, denied_bell) -> watch[c] = watch[c] | bit(i)
#ifndef BROKEN_FORGET_WHAT_CANNOT_BE_WATCHED
       :: has_lease(i) && is_odd(i, denied_bell) -> late_look[c] = 2 /* it looks again every 2 s */
#endif
       :: else
       fi
     }
#ifndef BROKEN_NO_WATCH_OF_SILENT
     for (i : 0 .. CLIENTS - 1) {
       if
       :: (before & bit(i)) != 0 && passes(c, i) -> watch[c] = watch[c] | bit(i)
       :: else
       fi
     }
#endif
#ifndef BROKEN_NO_WATCH_OF_RESERVER
     if
     :: reserver != NONE && reserver != c -> watch[c] = watch[c] | bit(reserver)
     :: else
     fi
#endif
  :: else
  fi;
  /* [R12] The first ticket of a user tells the second a little later, which then watches as well. */
  tell[c] = 0; told[c] = 0;
  if
#ifndef BROKEN_NEVER_TELL_THE_SECOND
  :: own_before == 0 ->
     found = false;
     for (i : 0 .. CLIENTS - 1) {
       t = queue[i];
       if
       :: t == NONE -> break
       :: t == c -> found = true
       :: t != NONE && t != c && found && has_ticket(t) && may_rely(t, c) && !passes(c, t) -> tell[c] = 2; told[c] = t; break
       :: else
       fi
     }
#endif
  :: else
  fi
}

/* [R13] Sets could to the tickets before c that would be granted if the unclaimed ones before them were silent. find_before() has set before. */
inline find_claimable(c) {
  walk(NONE, t != c && passes(c, t), (before & bit(t)) != 0);
  could = won & before
}

/* [R18] Sets overtaken to the noted tickets before c that cannot claim any more, and could if no client behind them had claimed: another client
 * has found them silent, and they reserve what is left. find_claimable() has set could. */
inline find_overtaken(c) {
  overtaken = 0;
#ifndef BROKEN_FORGET_THE_OVERTAKEN
  for (u : 0 .. CLIENTS - 1) {
    if
    :: (before & bit(u)) != 0 && (could & bit(u)) == 0 && view[c].note[u] != 0 ->
       remaining = ALL_GPUS;
       for (i : 0 .. SLOTS - 1) {
         if
         :: has_lease(i) && !is_within(i) && (i >= CLIENTS || key[i] <= key[u]) -> remaining = remaining & ~held_by(i)
         :: else
         fi
       }
       pick(remaining & choice[u], count[u]);
       if
       :: n >= count[u] -> overtaken = overtaken | bit(u)
       :: else
       fi
    :: else
    fi
  }
#endif
}

/* [R14] A noted ticket that could have claimed for long enough is silent: PATIENCE, and a tick for its rank among those that could. A ticket
 * that cannot claim (any more) is not noted. */
inline judge_notes(c) {
  find_before(c);
  find_claimable(c);
  sleepers = skipped;
  find_overtaken(c);
  could = could | overtaken;
  rank = 0;
  for (i : 0 .. CLIENTS - 1) {
    t = queue[i];
    if
    :: t == NONE || t == c -> break
    :: else
    fi;
    if
#ifndef BROKEN_NO_RANK
    :: ((could | sleepers) & bit(t)) != 0 -> rank++
#endif
    :: else
    fi;
    if
    :: (could & bit(t)) == 0 -> view[c].note[t] = 0; view[c].rank[t] = 0
    :: (could & bit(t)) != 0 && view[c].note[t] != 0 && rank < view[c].rank[t] ->
       /* A ticket before t is gone: t learns it now, and has a little time. */
       view[c].rank[t] = rank;
#ifndef BROKEN_NO_TIME_FOR_NEXT
       view[c].note[t] = (view[c].note[t] > PATIENCE -> PATIENCE : view[c].note[t]);
#endif
       ring(t)
    :: (could & bit(t)) != 0 && rank >= view[c].rank[t] && view[c].note[t] > PATIENCE + rank ->
       printf("      client %d finds ticket %d silent\n", c, t);
       view[c].silent[t] = true; view[c].note[t] = 0; view[c].rank[t] = 0
    :: else
    fi
  }
}

/* [R15] Others were granted something and stand before c: ring them, and decide again after a tick. If one of them has not
 * claimed by then, or c was rung, ring and note every ticket that could claim if the others were silent. */
inline note_unclaimed(c) {
  was_due = was_due && (won & before & view[c].unclaimed) != 0;
  view[c].unclaimed = won & before;
  if
  :: (won & before) != 0 || has_notes(c) -> look[c] = 2
  :: else -> look[c] = 0
  fi;
  if
  :: (won & before) != 0 && (was_due || was_rung || has_notes(c)) ->
     find_claimable(c);
     sleepers = skipped;
     rank = 0; found = false;
     for (i : 0 .. CLIENTS - 1) {
       t = queue[i];
       if
       :: t == NONE || t == c -> break
       :: else
       fi;
       if
#ifndef BROKEN_NO_RANK
       :: ((could | sleepers) & bit(t)) != 0 -> rank++
#endif
       :: else
       fi;
       if
       :: (could & bit(t)) != 0 && view[c].note[t] == 0 ->
          printf("      client %d notes ticket %d\n", c, t);
          view[c].note[t] = 1; view[c].rank[t] = rank; ring(t); found = true
       :: else
       fi
     }
#ifdef BROKEN_RING_WITHOUT_END
     found = true;
#endif
#ifndef BROKEN_NO_RING_TO_HOPEFUL
     /* Tickets behind c that would be granted then begin to note at the same time. */
     for (j : 0 .. CLIENTS - 1) {
       if
       :: found && (won & ~before & bit(j)) != 0 -> ring(j)
       :: else
       fi
     }
#endif
  :: else
  fi
}

inline wait(c) {
  find_before(c);
  winners = won;
  if
  :: killed_at != 2 -> ring_winners(c)
  :: else
  fi;
  if
  :: killed_at != 0 -> end_of_client(c)
  :: user[c] == HOSTILE_USER && killed_at == 0 -> skip
  :: else ->
     watch_bells(c);
     printf("      client %d waits; watches bells %d (bits)\n", c, watch[c]);
     won = winners;
     note_unclaimed(c);
     seen[c] = 0;
     for (i : 0 .. SLOTS - 1) {
       if
       :: has_notes(c) && has_lease(i) -> seen[c] = seen[c] | bit(i)
       :: else
       fi
     }
  fi
}

/* [R19] A client with an old snapshot does not claim: a process without a lease may have started on its GPUs. It decides again at once with a new
 * snapshot, and has a ticket. */
inline withhold_grant(c) {
  if
  :: killed_at != 2 -> ring_winners(c)
  :: else
  fi;
  if
  :: killed_at != 0 -> end_of_client(c)
  :: else ->
     printf("      client %d withholds its grant\n", c);
     watch[c] = 0;
#ifndef BROKEN_FORGET_THE_WITHHELD_GRANT
     event[c] = true
#endif
  fi
}

/* ---- The decision -------------------------------------------------------------------------------------------------------------- */

/* Under the lock. killed_at: 1: after the rings of the own bell were read; 2: after the claimer has rung others; 3: after its lease is
 * written; 4: after its ticket is removed, before it rings other tickets that are granted. */
inline decide(c) {
  d_step {
    was_rung = rung[c]; was_due = (look[c] == 1);
    rung[c] = false; event[c] = false; look[c] = 0;
    if
    :: late_look[c] == 1 -> late_look[c] = 0
    :: else
    fi;
    if
    :: killed_at == 1 -> killed(c)
    :: else ->
       printf("client %d decides\n", c);
       read_leases();
       judge_notes(c);
       walk(c, t != c && passes(c, t), false);
       if
       :: (won & bit(c)) != 0 && !has_old_snapshot -> claim(c)
       :: (won & bit(c)) != 0 && has_old_snapshot -> withhold_grant(c)
       :: else -> wait(c)
       fi
    fi;
    killed_at = 0; bell_kept = false; has_old_snapshot = false
  }
}

inline choose_kill() {
  if
  :: true /* not killed */
#ifndef NO_KILLS
  :: killed_at = 1
  :: killed_at = 2
  :: killed_at = 3
  :: killed_at = 4
  :: killed_at = 3; bell_kept = true
  :: killed_at = 4; bell_kept = true
#endif
  fi
}

inline choose_snapshot(c) {
#if OLD_SNAPSHOTS
  if
  :: true
  :: old_snapshots_left > 0 && user[c] != HOSTILE_USER -> has_old_snapshot = true; old_snapshots_left--
  fi
#else
  skip
#endif
}

/* [R16] The order key is max(N, ctime): an honest client writes the present time, a hostile one any number. */
#define NOW (arrived + 1)
#define FUTURE (CLIENTS + 2)
inline enter_queue(c) {
#ifndef BROKEN_TRUST_THE_NUMBER
  key[c] = (key[c] > NOW -> key[c] : NOW);
#endif
  /* A forged number puts no ticket before an honest one that was there already. */
  j = 0;
  do
  :: j < CLIENTS && queue[j] != NONE && key[queue[j]] <= key[c] -> j++
  :: else -> break
  od;
  t = c;
  do
  :: j < CLIENTS && t != NONE ->
     assert(!(queue[j] != NONE && has_ticket(queue[j]) && user[queue[j]] != HOSTILE_USER));
     u = queue[j]; queue[j] = t; t = u; j++
  :: else -> break
  od
}

proctype Client(byte c) {
  /* Arrive, in this order: any client may have any user and request, so another order adds nothing. */
  atomic {
    arrived == c ->
    key[c] = NOW;
    if
#if HOSTILE
    :: user[c] = HOSTILE_USER;
       if
       :: key[c] = 0 /* older than it is */
       :: true
       :: key[c] = FUTURE
       fi
#endif
    :: user[c] = 1
#if USERS > 1
    :: c > 0 && (user[0] == 1 || (c > 1 && user[1] == 1)) -> user[c] = 2
#endif
    fi;
    if
    :: count[c] = 1; choice[c] = ALL_GPUS
#if GPUS > 1
    :: count[c] = 1; choice[c] = bit(0)
    :: count[c] = GPUS; choice[c] = ALL_GPUS
#endif
    fi;
    d_step {
      restart_waits();
      bell[c] = true; runs[c] = true;
      enter_queue(c);
      ticket[c] = true;
      arrived++;
      printf("client %d of user %d arrives for %d of GPUs %d (bits), key %d\n", c, user[c], count[c], choice[c], key[c])
    }
    if
    :: user[c] != HOSTILE_USER -> goto decision
    :: else
    fi
  }
end:
  do
  :: atomic {
       can_act(c) && (user[c] == HOSTILE_USER || wakes(c)) ->
decision:
       choose_kill();
       choose_snapshot(c);
       decide(c)
     }
  :: d_step { can_act(c) && tell[c] == 1 -> ring(told[c]); tell[c] = 0; told[c] = 0 }
  /* It leaves the queue, gives its GPUs back, or is killed: without the lock, at any time. */
  :: d_step { bell[c] -> end_of_client(c); skip }
#ifdef PLANTED
  :: d_step {
       can_act(c) && !planted[c] && user[c] != HOSTILE_USER ->
       printf("a hostile user makes a file with the name of client %d's lease\n", c);
       planted[c] = true
     }
#endif
#if STOPS
  :: d_step { can_act(c) && stops_left > 0 && user[c] != HOSTILE_USER && settled -> printf("client %d is stopped\n", c); restart_waits(); stopped[c] = true; was_stopped[c] = true; stops_left-- }
  :: d_step { stopped[c] -> printf("client %d continues\n", c); restart_waits(); stopped[c] = false }
#endif
  od
}

/* A lease that was there before the clients: it ends at any time. */
proctype Holder(byte s) {
end:
  do
  :: d_step {
       bell[s] ->
       printf("the lease in slot %d ends\n", s);
       end_of_bell(s);
#ifndef BROKEN_COUNT_DEAD_BELLS
       lease[s] = (is_odd(s, denied_bell) -> lease[s] : 0);
#endif
       skip
     }
  :: d_step { is_odd(s, denied_bell) && !bell[s] && lease[s] != 0 -> printf("the files in slot %d are removed\n", s); lease[s] = 0 }
#ifdef NESTED
  :: d_step {
       s == OUTER && !bell[s] && !outer_is_hostile ->
       printf("a hostile user makes a lease with the ID of slot %d\n", s);
       outer_is_hostile = true; bell[s] = true; lease[s] = ALL_GPUS & ~bit(0)
     }
#endif
  od
}

/* Time passes when no honest client that is awake has anything to do. */
inline advance(timer) {
  if
  :: timer > 1 -> timer--
  :: else
  fi
}

proctype Clock() {
end:
  do
  :: d_step {
       !a_client_must_act ->
       printf("tick\n");
       for (u : 0 .. CLIENTS - 1) {
         for (j : 0 .. CLIENTS - 1) {
           /* [R14] A client that has not decided for a while (it was stopped) drops its notes. */
           if
           :: look[u] == 1 ->
              view[u].note[j] = 0; view[u].rank[j] = 0;
              view[u].unclaimed = 0; owed[u] = 0
           :: look[u] != 1 && view[u].note[j] > 0 -> view[u].note[j]++
           :: else
           fi
         }
         advance(look[u]); advance(late_look[u]); advance(tell[u])
       }
       /* No lost wake-up, and none waits for ever behind a silent ticket: an honest ticket that could be granted if silent and stopped ones
        * were not there is granted soon. */
       unheld = ALL_GPUS;
       for (i : 0 .. SLOTS - 1) {
         if
         :: lease[i] != 0 && (bell[i] || is_odd(i, denied_bell)) -> unheld = unheld & ~held_by(i)
         :: else
         fi
       }
       for (u : 0 .. CLIENTS - 1) {
         /* That a ticket which reserves was stopped or continued, only the audit notices. */
#define is_past(t) (view[u].silent[t] || (is_faulty(t) && (owed[u] & bit(t)) != 0))
         walk(u, t != u && (is_past(t) || was_stopped[t]), is_faulty(t));
         could = won;
         walk(u, t != u && is_past(t), is_faulty(t));
         /* No other user makes the ticket of an honest client not count. */
         assert(!(can_act(u) && !is_faulty(u) && !has_ticket(u)));
         if
         :: can_act(u) && !is_faulty(u) && (could & won & bit(u)) != 0 -> waits[u]++; assert(waits[u] <= WAIT_LIMIT)
         :: else -> waits[u] = 0
         fi
       }
       skip
     }
#ifdef CHECK_PROGRESS
     ;
progress: skip /* clients do not ring each other without end: time passes again and again (pan -l) */
#endif

  od
}

init {
  atomic {
    for (i : 0 .. CLIENTS - 1) {
      queue[i] = NONE
    }
    for (i : 0 .. GPUS - 1) {
      bell[CLIENTS + i] = true; lease[CLIENTS + i] = bit(i)
    }
#ifdef NESTED
    lease[INNER] = lease[OUTER];
#endif
#ifdef ODD
    if
    :: oddity = unreadable
    :: oddity = other_uid
    :: oddity = denied_bell
    :: oddity = ended_by_other
    fi;
#endif
    run Clock();
    for (i : 0 .. CLIENTS - 1) {
      run Client(i)
    }
    for (i : 0 .. GPUS - 1) {
      run Holder(CLIENTS + i)
    }
  }
}
