//! One thread that serves all connections.

use super::allowance::Allowances;
use super::dispatch::{Dispatch, only_tells};
use super::message::{Call, Fault, reply};
use super::operations::Operations;
use super::{MOST_MESSAGE, SOCKET};
use crate::service::{Peer, Service};
use headstart_system::owner::owner;
use headstart_system::peer::{credentials, inherited_listener, pidfd};
use headstart_system::process::ProcessStat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections in all, those of one user, and those that are kept for root, who has to be able to stop
/// whoever takes the others.
const MOST: usize = 64;
const MOST_OF_USER: usize = 4;
const FOR_ROOT: usize = MOST_OF_USER;

/// How long a client may take.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// A message has to have come, or to be taken, within this time.
    pub within: Duration,
    /// A connection without a call is closed after this time.
    pub idle: Duration,
}

const PATIENCE: Patience = Patience {
    within: Duration::from_secs(5),
    idle: Duration::from_secs(60),
};

/// After this time connections are accepted again, where there were no descriptors left.
const PAUSE: Duration = Duration::from_secs(1);

/// The listening socket: the one that systemd handed over, or one made here, which everybody may connect to.
pub fn listen() -> io::Result<UnixListener> {
    match inherited_listener()? {
        Some(listener) => Ok(listener),
        None => bind(Path::new(SOCKET)),
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if UnixStream::connect(path).is_ok() {
        let why = "somebody serves it already: stop the other headstart daemon";
        return Err(failed(io::Error::new(ErrorKind::AddrInUse, why)));
    }
    // Of a daemon that is gone.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).map_err(failed)?;
    Ok(listener)
}

/// Serves until something can be read from `stop`, or its other end is closed.
pub fn serve(listener: UnixListener, service: Arc<dyn Service>, stop: impl AsFd) -> io::Result<()> {
    serve_with(listener, service, stop, PATIENCE)
}

pub(super) fn serve_with(
    listener: UnixListener,
    service: Arc<dyn Service>,
    stop: impl AsFd,
    patience: Patience,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut server = Server {
        patience,
        service,
        connections: Vec::new(),
        operations: Operations::default(),
        allowances: Allowances::default(),
        paused: None,
    };
    while server.turn(&listener, stop.as_fd())? {}
    Ok(())
}

struct Server {
    patience: Patience,
    service: Arc<dyn Service>,
    connections: Vec<Connection>,
    operations: Operations,
    allowances: Allowances,
    /// Until when nothing is accepted.
    paused: Option<Instant>,
}

struct Connection {
    patience: Patience,
    stream: UnixStream,
    peer: Peer,
    /// What has come and is no whole message yet, or waits until the reply before it is taken.
    read: Vec<u8>,
    /// What is still to be taken of a reply.
    write: Vec<u8>,
    /// Nothing more comes.
    ended: bool,
    /// It is closed when its reply has been taken.
    last: bool,
    /// When it is closed if nothing is done until then.
    deadline: Instant,
    /// No call is answered before: its user has had others answered.
    due: Instant,
}

impl Server {
    /// Waits for something to happen and does what is to be done then; false when it is to stop.
    fn turn(&mut self, listener: &UnixListener, stop: BorrowedFd<'_>) -> io::Result<bool> {
        let now = Instant::now();
        self.connections.retain(|one| one.deadline > now);
        self.paused = self.paused.filter(|until| *until > now);
        let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        let accepts = match self.paused {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        fds.push(PollFd::new(listener, accepts));
        fds.extend(
            self.connections
                .iter()
                .map(|one| PollFd::new(&one.stream, one.waits_for(now))),
        );
        let deadlines = self.connections.iter().map(|one| one.deadline).chain(self.paused);
        let dues = self.connections.iter().filter(|one| one.is_put_off(now));
        let deadlines = deadlines.chain(dues.map(|one| one.due));
        let may_be_answered = |one: &Connection| one.has_call() && !one.is_put_off(now);
        let wait = match self.connections.iter().any(may_be_answered) {
            true => Some(Duration::ZERO),
            false => deadlines
                .min()
                .map(|at| at.saturating_duration_since(now) + Duration::from_millis(1)),
        };
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        let events: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let [stopped, accepted, of_connections @ ..] = &events[..] else {
            return Ok(false);
        };
        if !stopped.is_empty() {
            return Ok(false);
        }
        let Server {
            service,
            connections,
            operations,
            allowances,
            ..
        } = self;
        let mut events = of_connections.iter();
        connections.retain_mut(|one| {
            let ready = events.next().is_some_and(|events| !events.is_empty());
            if one.is_put_off(now) {
                // It was asked for nothing, so it tells that who called is gone.
                return !ready;
            }
            let turns = ready || one.has_call();
            !turns || one.turn(ready, service.as_ref(), operations, allowances).is_ok()
        });
        if accepted.contains(PollFlags::IN) {
            self.accept(listener);
        }
        Ok(true)
    }

    /// Accepts one connection; the others wait for the next turn.
    fn accept(&mut self, listener: &UnixListener) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // No descriptors, or no memory.
            Err(_) => {
                self.paused = Some(Instant::now() + PAUSE);
                return;
            }
        };
        let Ok(who) = credentials(stream.as_fd()) else {
            return;
        };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let process = u32::try_from(who.pid).unwrap_or(0);
        // Whose ids these are nobody can say any more of a process that has ended. Of one that cannot be seen
        // from here that is so as well.
        if who.uid != 0 && process != 0 && ProcessStat::for_process(process).is_none() {
            return;
        }
        let uid = owner(process, who.uid);
        let mut connection = Connection {
            patience: self.patience,
            peer: Peer {
                uid,
                gid: who.gid,
                pid: who.pid,
                pidfd: pidfd(stream.as_fd()),
            },
            stream,
            read: Vec::new(),
            write: Vec::new(),
            ended: false,
            last: false,
            deadline: Instant::now() + self.patience.idle,
            due: Instant::now(),
        };
        let of_user = self.connections.iter().filter(|one| one.peer.uid == uid).count();
        let room = match connection.peer.is_root() {
            true => MOST,
            false => MOST - FOR_ROOT,
        };
        if of_user >= MOST_OF_USER || self.connections.len() >= room {
            let message =
                format!("{MOST_OF_USER} connections of a user and {MOST} in all may be open: close one");
            connection.write = reply(Err(Fault::own("TooManyConnections", json!({}), &message)));
            // What the socket does not take at once it never gets: there is room for it in any that is new.
            let _ = connection.send();
            return;
        }
        self.connections.push(connection);
    }
}

impl Connection {
    fn waits_for(&self, now: Instant) -> PollFlags {
        if self.is_put_off(now) {
            return PollFlags::empty();
        }
        match (self.write.is_empty(), self.ended) {
            (false, _) => PollFlags::OUT,
            (true, false) => PollFlags::IN,
            (true, true) => PollFlags::empty(),
        }
    }

    /// Whether a whole call has come that can be answered.
    fn has_call(&self) -> bool {
        self.write.is_empty() && !self.last && self.read.contains(&0)
    }

    /// Whether its call is answered later.
    fn is_put_off(&self, now: Instant) -> bool {
        self.has_call() && self.due > now
    }

    /// Reads or writes what can be without waiting (`ready`), and answers one call: others have theirs
    /// answered before the next. An error closes the connection.
    fn turn(
        &mut self,
        ready: bool,
        service: &dyn Service,
        operations: &mut Operations,
        allowances: &mut Allowances,
    ) -> io::Result<()> {
        if ready && !self.write.is_empty() {
            self.send()?;
        } else if ready && !self.ended {
            self.receive()?;
        }
        if self.has_call() {
            let begun = Instant::now();
            let answered = self.answer(service, operations);
            if !self.peer.is_root() {
                let now = Instant::now();
                self.due = allowances.charge(self.peer.uid, now - begun, now);
                self.deadline = self.deadline.max(self.due + self.patience.within);
            }
            answered?;
        }
        match self.write.is_empty() && (self.last || self.ended && !self.has_call()) {
            true => Err(ErrorKind::UnexpectedEof.into()),
            false => Ok(()),
        }
    }

    fn answer(&mut self, service: &dyn Service, operations: &mut Operations) -> io::Result<()> {
        let end = self.read.iter().position(|byte| *byte == 0).unwrap_or(0);
        let message: Vec<u8> = self.read.drain(..=end).collect();
        let call = serde_json::from_slice::<Call>(&message[..end]);
        let oneway = call.as_ref().is_ok_and(|call| call.oneway);
        let answer = match call {
            // What only tells something does nothing for who does not listen.
            Ok(call) if oneway && only_tells(&call.method) => Ok(json!({})),
            Ok(call) => Dispatch {
                service,
                peer: &self.peer,
                operations,
            }
            .answer(call),
            // Whoever says what is no call is not understood in what follows either.
            Err(_) => {
                self.last = true;
                Err(Fault::parameter("method"))
            }
        };
        let within = match self.read.is_empty() {
            true => self.patience.idle,
            false => self.patience.within,
        };
        self.deadline = Instant::now() + within;
        if oneway {
            return Ok(());
        }
        self.write = reply(answer);
        self.deadline = Instant::now() + self.patience.within;
        self.send()
    }

    fn receive(&mut self) -> io::Result<()> {
        let had = self.read.len();
        if had == 0 {
            self.deadline = Instant::now() + self.patience.within;
        }
        // A message that is longer is none of ours.
        let room = MOST_MESSAGE.saturating_sub(had);
        if room == 0 {
            return Err(ErrorKind::InvalidData.into());
        }
        self.read.resize(had + room.min(4096), 0);
        let got = self.stream.read(&mut self.read[had..]);
        self.read.truncate(had + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        match self.stream.write(&self.write) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(sent) => drop(self.write.drain(..sent)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if self.write.is_empty() && self.read.is_empty() {
            self.deadline = Instant::now() + self.patience.idle;
        }
        Ok(())
    }
}
