"""What is tried, by number, and what is expected of each tier: the documentation's table is made from this one.

A row is an attempt: its case, its name, what it does, and one letter for each of local, bwrap, landlock and docker:
H  it holds: nothing gets through, and a control shows that it would have without a sandbox
O  it does not hold, and is shown to get through
N  it is not claimed: nothing is promised there; `NOTES` says why
-  it does not apply

`local` is read for whoever runs skills as themselves. As root, scripts run as another user, and more holds than this.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Expected = Literal["held", "open", "unclaimed", "not applicable"]
TIERS = ("local", "bwrap", "landlock", "docker")
WORDS: dict[str, Expected] = {"H": "held", "O": "open", "N": "unclaimed", "-": "not applicable"}


class Case(NamedTuple):
    number: int
    group: str
    title: str


class Try(NamedTuple):
    case: int
    name: str
    what: str
    letters: str

    def expected(self, tier: str) -> Expected:
        return WORDS[self.letters[TIERS.index(tier)]]


_CASES = """
Files
    1 read what is not the workspace
    2 learn what other folders hold
    3 change the skill
    4 change what is not the workspace
    5 a link from the workspace to elsewhere
    6 a hard link to a secret
    7 through /proc to other processes' files
    8 `..`, and moving what is mounted
    9 make a setuid or setgid file
    10 devices
    11 the kernel's settings
    12 the workspace is a link when the next run comes
Secrets
    13 the environment of whoever started it
    14 the environment of other processes
    15 an inherited descriptor
    16 the command lines of other processes
    17 the user's keyring
Processes
    18 see the processes of the machine
    19 touch a process of the same user
    20 raise its rights through a setuid program
    21 keep privileges
    22 be root on the host
Network
    23 TCP
    24 UDP and names
    25 abstract unix sockets
    26 unix sockets by path
    27 other kinds of sockets
    28 TCP by another name
    29 TCP through io_uring
    30 past the proxy's list
Kernel
    31 namespaces of its own
    32 mount something
    33 interfaces that no script needs
    34 the calls of other architectures
    35 type into a terminal
    36 the personality
Limits
    37 a fork bomb
    38 memory of one process
    39 memory of many, and memory that no process owns
    40 fill the temporary folders
    41 fill the workspace
    42 use up the processor
    43 print without an end
    44 ignore that the time is up
    45 use up descriptors
    46 folders without a bottom
Lifetime
    47 stay when the run is over
    48 keep the streams of a run that is over
    49 concurrent runs
    50 what is left behind
Collection
    51 hostile files among the outputs
    52 a file that changes while it is collected
Policy
    53 no sandbox to be had
    54 a planted bubblewrap
    55 nobody to run as but root
    56 a sandbox that does not hold
    57 a limit that is required and not enforced
    58 a filter that cannot be loaded
    59 odd paths and arguments
More
    60 a name that is a path
    61 `cwd` and `to` that lead out of the workspace
    62 around a list of allowed commands
    63 speak to the terminal of whoever looks
    64 learn about the machine
"""

_TRIES = """
1 read-home                  read credentials in a home folder                          OHHH
1 read-shadow                read a file of passwords                                   OHHH
1 read-etc-passwd            read the machine's list of users                           OHHH
1 read-other-workspace       read another session's work/                               OHHH
1 read-other-input           read another session's inputs                              OHHH
1 read-meta                  read what is noted about another session                   OHHH
1 read-dev-shm               read a file in the machine's /dev/shm                      OHHH
1 skill-other                read a skill that this run does not name                   OHHH
2 list-home                  list a home folder                                         OHHH
2 list-host-tmp              list the machine's /tmp                                    OHHH
2 list-other-workspaces      list another session's place                               OHHH
2 stat-home                  learn that a file exists, and its size                     OHOH
2 watch-home                 be told the names of files as they are touched             OHHH
3 skill-new                  add a file to the skill                                    OHHH
3 skill-modify               change a file of the skill                                 OHHH
3 skill-truncate             cut a file of the skill short                              OHHH
3 skill-unlink               remove a file of the skill                                 OHHH
3 skill-rename               rename a file of the skill                                 OHHH
3 skill-chmod                change the mode of a file of the skill                     OHOH
3 skill-replace              replace the whole skill                                    OHHH
3 skill-source               edit the source that the skill was loaded from             OHHH
3 skill-published            edit the tree that all sessions share                      OHHH
4 write-host-tmp             write to the machine's /tmp                                OHHH
4 write-dev-shm              write to the machine's /dev/shm                            OHHH
4 write-home                 write to a dotfile in a home folder                        OHHH
4 write-outside              make a file elsewhere                                      OHHH
4 write-other-workspace      write to another session's work/                           OHHH
4 truncate-outside           cut a file short                                           OHHH
4 unlink-outside             remove a file                                              OHHH
4 rename-outside             move a file over one that is elsewhere                     OHHH
4 take-outside               move a file from elsewhere into the workspace              OHHH
4 mkdir-outside              make a folder elsewhere                                    OHHH
4 chmod-outside              change the mode of a file                                  OHOH
4 utime-outside              change the time of a file                                  OHOH
4 xattr-outside              put an attribute on a file                                 OHOH
5 symlink-read               read through a link                                        OHHH
5 symlink-write              write through a link                                       OHHH
5 symlink-lead               turn the skill's out/ into a link to elsewhere             OHHH
6 hardlink                   link a secret into the workspace                           OHHH
7 proc-1-root                /proc/1/root                                               HHHH
7 proc-ppid-root             /proc/PPID/root                                            OHHH
7 proc-any-root              /proc/*/root                                               OHHH
7 proc-any-cwd               /proc/*/cwd                                                OHHH
7 proc-any-fd                /proc/*/fd                                                 OHHH
7 exe-rewrite                rewrite a program through /proc/PID/exe                    OHHH
8 dot-dot                    forty times `..`                                           OHHH
8 dot-dot-by-descriptor      `..` of a descriptor                                       OHHH
8 rename-mount-point         move work/ away while it stands in it                      OHHH
8 exchange-mount-point       exchange work/ for a link                                  OHHH
9 setuid-chmod               chmod                                                      OHHH
9 setgid-chmod               chmod, setgid                                              OHHH
9 setgid-folder              chmod, setgid on a folder                                  OHHH
9 setuid-fchmod              fchmod                                                     OHHH
9 setuid-fchmodat2           fchmodat2                                                  OHHH
9 setuid-open                open with a mode                                           OHHH
9 setuid-creat               creat                                                      OHHH
9 setuid-open-old            open(2) itself, which the C library does not use           OHHH
9 setuid-chmod-old           chmod(2) itself                                            OHHH
9 setuid-fchmodat            fchmodat                                                   OHHH
9 setuid-mknod-old           mknod(2) itself                                            OHHH
9 setuid-openat2             openat2                                                    OHHH
9 setuid-tmpfile             a file without a name that gets one                        OHHH
9 setuid-mknod               mknod                                                      OHHH
9 file-capability            a capability on a file                                     HHHH
10 mknod-disk                make a node for the disk                                   HHHH
10 mknod-null                make a character device                                    HHHH
10 open-disk                 open the disk                                              HHHH
10 open-kmsg                 open the kernel's log                                      HHHH
10 open-mem                  open the machine's memory                                  HHHH
10 open-by-handle            open a file by its number                                  HHHH
11 core-pattern              write to core_pattern                                      HHHH
11 sysrq                     open sysrq-trigger                                         HHHH
11 sysctl                    open other settings for writing                            HHHH
11 sysfs                     open settings below /sys for writing                       HHHH
11 sysfs-visible             look around in /sys                                        OHHO
11 cgroup                    make a cgroup                                              HHHH
11 oom-score                 have another process killed first                          OHHH
13 environment               a variable of whoever started it                           HHHH
14 proc-environ              /proc/*/environ                                            OHHH
15 inherited-descriptor      read from every descriptor there is                        HHHH
15 open-descriptors          have any descriptor but its three streams                   HHHH
16 proc-cmdline              /proc/*/cmdline                                            OHHH
17 keyring                   read a key of the user's                                   OHHH
17 add-key                   add a key                                                  OHHH
17 sysv-memory               read shared memory of the user's other programs            OHHH
17 message-queue             read a message queue of the user's other programs          OHHH
18 list-pids                 list the processes of the machine                          OHHH
18 guess-pid                 find out by its number that a process exists               OHOH
19 signal                    a signal                                                   OHHH
19 signal-zero               no signal, only the right to send one                      OHHH
19 signal-group              a signal to its group                                      OHHH
19 signal-thread             a signal to its thread                                     OHHH
19 signal-by-descriptor      a signal through a descriptor                              OHHH
19 signal-queued             a queued signal                                            OHHH
19 signal-by-pipe            a signal from a pipe that it is made the owner of          OHHH
19 ptrace                    trace it and write to its memory                           OHHH
19 ptrace-own-child          be traced                                                  OHHH
19 vm-read                   read its memory                                            OHHH
19 vm-write                  write to its memory                                        OHHH
19 proc-mem                  read and write its memory through /proc                    OHHH
19 take-descriptor           take its open file                                         OHHH
19 compare-descriptors       compare its open files                                     OHHH
19 limits-of-victim          lower its limits                                           OHHH
19 priority-of-victim        lower its priority                                         OHHH
19 processor-of-victim       tie it to one processor                                    OHHH
19 io-priority-of-victim     lower its priority at the disk                             OHHH
20 setuid-program            execute a setuid program of root's                         HHHH
20 setuid-system-program     execute a setuid program of the system                     HHHH
20 become-root               setuid(0)                                                  HHHH
21 capabilities              have capabilities                                          HHHH
21 bounding-set              have capabilities within reach                             OHOH
21 new-privileges            gain privileges by executing something                     HHHH
21 more-descriptors          lift a limit that was set from outside                     HHHH
22 owner                     make a file that is root's                                 HHHH
23 tcp-loopback              to the machine's own programs                              OHHH
23 tcp-loopback-6            the same over IPv6                                         OHHH
23 tcp-host-address          to the machine by its address                              OHHH
23 resolve-and-connect       by name                                                    OHHH
24 route-out                 find a way out of the machine                              OHHH
24 udp-loopback              to the machine's own programs                              OHHH
24 udp-host-address          to the machine by its address                              OHHH
24 dns                       ask a resolver on this machine                             OHHH
25 unix-abstract             connect                                                    OHHH
25 unix-abstract-datagram    send                                                       OHHH
26 unix-path                 connect to a socket like Docker's                          OHHH
26 unix-path-datagram        send to a socket like that of a log                        OHHH
26 unix-by-link              connect through a link in the workspace                    OHHH
26 unix-pair-datagram        send by path from one of a pair of datagram sockets        OHHH
26 unix-pair-raw             send by path from one of a pair of raw sockets             OHHH
27 vsock                     to the hypervisor                                          OHHH
27 vsock-datagram            to the hypervisor, by datagram                             OHHH
27 socketpair-vsock          a pair of those                                            OHHH
27 netlink                   to the kernel's network tables                             OHHH
27 netlink-audit             to the kernel's audit                                      OHHH
27 netlink-uevent            to the kernel's news about devices                         OHHH
27 packet                    raw frames                                                 HHHH
27 raw-icmp                  raw IP                                                     HHHH
27 alg                       to the kernel's cryptography                               OHHH
27 bluetooth                 Bluetooth                                                  OHHH
27 xdp                       XDP                                                        HHHH
27 key                       IPsec keys                                                 HHHH
28 mptcp                     MPTCP                                                      OHHH
28 sctp                      SCTP                                                       OHHH
28 sctp-one-to-many          SCTP, one to many                                          OHHH
28 dccp                      DCCP                                                       OHHH
28 udp-lite                  UDP-Lite                                                   ONHN
28 fast-open                 data in the first packet                                   OHHH
29 uring-connect             a socket that io_uring makes and connects                  OHHH
31 unshare-user              a user namespace                                           OHHH
31 unshare-user-net          with a network                                             OHHH
31 unshare-user-pid          with processes                                             OHHH
31 unshare-user-ipc          with shared memory                                         OHHH
31 unshare-user-uts          with a name                                                OHHH
31 unshare-user-cgroup       with cgroups                                               OHHH
31 unshare-user-time         with a clock                                               OHHH
31 unshare-mount             a mount namespace alone                                    HHHH
31 unshare-net               a network namespace alone                                  HHHH
31 clone-user                clone                                                      OHHH
31 clone3-user               clone3                                                     OHHH
31 setns                     enter a namespace                                          HHHH
31 setns-other               enter those of another process                             HHHH
32 mount                     mount(2)                                                   HHHH
32 mount-bind                bind the root folder                                       HHHH
32 mount-in-namespace        mount as root of a namespace of its own                    OHHH
32 remount                   make what is read-only writable                            HHHH
32 umount                    umount2                                                    HHHH
32 fsopen                    fsopen, fsconfig, fsmount                                  HHHH
32 open-tree                 open_tree                                                  HHHH
32 move-mount                move_mount                                                 HHHH
32 mount-setattr             mount_setattr                                              HHHH
32 pivot-root                pivot_root                                                 HHHH
32 chroot                    chroot                                                     HHHH
33 bpf                       bpf                                                        HHHH
33 perf                      perf_event_open                                            OHHH
33 userfaultfd               userfaultfd                                                OHHH
33 io-uring                  io_uring_setup                                             OHHH
33 keyctl                    keyctl                                                     OHHH
33 request-key               request_key                                                OHHH
33 kexec                     kexec_load                                                 HHHH
33 kexec-file                kexec_file_load                                            HHHH
33 module-load               init_module                                                HHHH
33 module-load-file          finit_module                                               HHHH
33 module-remove             delete_module                                              HHHH
33 reboot                    reboot                                                     HHHH
33 swap                      swapon                                                     HHHH
33 kernel-log                syslog                                                     HHHH
33 fanotify                  fanotify_init                                              OHHH
34 int80                     a 32-bit call                                              OHHH
34 int80-socket              a socket by a 32-bit call                                  OHHH
34 x32                       an x32 call                                                OHHH
35 tty-type                  TIOCSTI                                                    OHHH
35 tty-paste                 TIOCLINUX                                                  OHHH
35 tty-forge                 write a question on another terminal of the user           OHHH
35 tty-keys                  read what is typed there                                   OHHH
36 personality-exec          READ_IMPLIES_EXEC                                          OHHH
36 personality-no-randomize  ADDR_NO_RANDOMIZE                                          OHHH
49 signal-other-run          signal another session's run                               OHHH
49 other-run-environ         read the environment of another session's run              OHHH
12 next-run                  the next run writes where the link leads                    HHHH
12 next-input                the host puts an input where the link leads                HHHH
12 next-collect              the host collects from where the link leads                HHHH
30 proxy-other-port          another port of the allowed host                           -H--
30 proxy-other-address       another address                                            -H--
30 proxy-name                a name that leads to an address that is not public         -H--
30 proxy-redirect            a redirect to elsewhere                                    -H--
30 proxy-around              without the proxy                                          -H--
37 fork-bomb                 as many children as it can get                             HHHH
37 fork-bomb-neighbour       leave no process for another session                       OHOH
38 memory                    more than the limit in one process                         NNNH
39 memory-of-children        more than the limit in several                             NNNH
39 memory-shared             more than the limit in maps and files without a name       NNNH
40 fill-tmp                  TMPDIR                                                     OHOH
40 fill-shm                  /dev/shm                                                   OHHH
40 fill-dev                  /dev                                                       HHHH
40 fill-root                 /                                                          HHHH
41 large-file                one file that is larger than the limit                     HHHH
41 fill-workspace            many files that are                                        HHHH
42 spin                      compute for ever                                           HHHH
43 endless                   bytes without a line                                       HHHH
44 past-timeout              not hear SIGTERM                                           HHHH
45 descriptors               as many as it can get                                      HHHH
46 deep-folders              deeper than a path can say                                 HHHH
47 daemon-exit               a daemon, after the command has ended                      HHHH
47 daemon-timeout            a daemon, after its time was up                            HHHH
47 daemon-cancel             a daemon, after the run was cancelled                      HHHH
47 daemon-supervisor         a daemon, after its supervisor was killed                  HHHH
47 daemon-parent             a daemon, after the whole runtime was killed               HHHH
48 held-streams              a grandchild that holds stdout                             HHHH
50 swept                     groups and containers of a runtime that was killed         HHHH
50 swept-tmp                 temporary folders of a runtime that was killed             HHHH
50 left-behind               processes, temporary folders, groups, containers           HHHH
51 collect-links             links to a secret                                          HHHH
51 collect-hard-link         a hard link to a secret                                    OHHH
51 collect-fifo              a FIFO that nobody writes to                               HHHH
51 collect-many              more files than are wanted                                 HHHH
51 collect-sparse            10 GB that take no room                                    HHHH
51 collect-odd-names         names with line breaks, escapes, bytes that are no text    HHHH
52 collect-changing          now a file, now a link                                     HHHH
53 no-sandbox                run without one what is not trusted                        HHH-
54 planted-bubblewrap        from PATH, the working directory or the workspace          -H--
55 run-as-root               be run as root, or as a user that cannot be become         HHHH
56 failed-self-test          be run in a box that does not hold                         -HH-
56 weak-engine               be run in a container that does not hold                   ---H
57 limit-not-enforced        be run without it                                          HHHH
58 filter-not-loaded         be run without it                                          -HH-
59 odd-paths                 line breaks, dashes, quotes, commas                        HHHH
59 odd-bytes                 bytes that are no text                                     HHHH
60 names                     a skill or a run called ../../x                            HHHH
61 cwd                       start in ../.., in an absolute path, behind a link         HHHH
61 inputs                    put an input there, or take one from there                 HHHH
62 command-list              other names, launchers, interpreters, shell syntax         HHHH
63 terminal                  escapes in names, findings and output                      HHHH
64 host-name                 its name                                                   OHOH
64 kernel-command-line       what its kernel was started with                           OHHH
64 mount-table               what is mounted, and from where on the host                OOHO
64 list-mounts               the same by listmount(2)                                   OHHH
"""

NOTES = {  # attempt: why it is as it is
    "stat-home": "Landlock decides about opening files, not about looking at what a path leads to.",
    "chmod-outside": "Landlock does not know about modes: a file of the same user can be made unreadable, or readable "
    "to others. As root, scripts run as a user of their own, who has no files elsewhere.",
    "utime-outside": "As with modes.",
    "xattr-outside": "As with modes.",
    "skill-chmod": "As with modes; a copy that was touched is made anew before the next run.",
    "guess-pid": "There are no namespaces in a Landlock box; a process can be known, and not touched.",
    "bounding-set": "Only root can empty it, and does. For anybody else it is of no use: nothing raises privileges.",
    "host-name": "The name belongs to a namespace, and there are none in a Landlock box.",
    "mount-table": "The kernel tells every process its own mounts, and so the path of the workspace on the host.",
    "sysfs-visible": "Read-only, and of the network it shows the container's own.",
    "fork-bomb-neighbour": "Without a namespace the kernel counts all processes of a user together. A limit on memory "
    "brings control groups, and then each run is counted by itself.",
    "memory": "Where there is a control group for us (as root, or a delegated one) it holds; the isolation of each "
    "result says so, and workspace.require = ['memory'] insists on it.",
    "memory-of-children": "As with the memory of one process.",
    "memory-shared": "As with the memory of one process.",
    "fill-tmp": "Temporary files are on the disk there; the limit on the disk is a best effort and does not see them.",
    "collect-hard-link": "Whoever can link it could have copied it.",
    "udp-lite": "It leads nowhere in a network that leads nowhere.",
}


def _cases() -> list[Case]:
    found, group = [], ""
    for line in _CASES.strip().splitlines():
        number, _, title = line.strip().partition(" ")
        if number.isdigit():
            found.append(Case(int(number), group, title))
        else:
            group = line.strip()
    return found


def _tries() -> list[Try]:
    found = []
    for line in _TRIES.strip().splitlines():
        case, name, *what, letters = line.split()
        assert len(letters) == len(TIERS) and set(letters) <= set(WORDS), line
        found.append(Try(int(case), name, " ".join(what), letters))
    return sorted(found, key=lambda each: each.case)


CASES = _cases()
TRIES = _tries()
# What is shown by tests of its own, because it is not about a run, or not about one run.
APART = {
    "no-sandbox",
    "planted-bubblewrap",
    "failed-self-test",
    "filter-not-loaded",
    "inputs",
    "command-list",
    "terminal",
}
