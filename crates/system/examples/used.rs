//! Which functions a program uses until it ends, and what it forks by then, by a breakpoint at each. On
//! x86-64.
//!
//! `cargo run --release -p headstart-system --example used -- [--root DIR] [--seconds N] FILE COMMAND...`
//!
//! PROGRAM has its symbols. FILE gets their addresses, in the order of their first use, a line each. What
//! still goes on then is killed, and after N seconds the program itself. With DIR for its root, it is a path
//! from there. `make order` says what that is for.

#[cfg(target_arch = "x86_64")]
mod traced {
    use std::collections::{HashMap, HashSet};
    use std::error::Error;
    use std::ffi::{CString, OsString};
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    /// What a breakpoint is made of: `int3`.
    const BREAK: u8 = 0xcc;

    type Result<T> = std::result::Result<T, Box<dyn Error>>;

    pub fn run() -> Result<()> {
        let mut arguments = std::env::args_os().skip(1).peekable();
        let mut option = |name: &str| {
            arguments.next_if(|word| word == name)?;
            arguments.next()
        };
        let root = option("--root").unwrap_or_else(|| "/".into());
        let seconds = option("--seconds").map(|word| word.to_string_lossy().parse());
        let (Some(file), Some(program)) = (arguments.next(), arguments.next()) else {
            return Err("usage: used [--root DIR] [--seconds N] FILE PROGRAM ARGUMENTS...".into());
        };
        let mut line = Command::new(&program);
        line.args(arguments);
        let from_root = Path::new(&program)
            .strip_prefix("/")
            .unwrap_or(Path::new(&program));
        let found = used(
            line,
            &Path::new(&root).join(from_root),
            root,
            seconds.transpose()?,
        )?;
        let lines: String = found.iter().map(|address| format!("{address:x}\n")).collect();
        Ok(std::fs::write(file, lines)?)
    }

    /// Where the functions of a program are.
    fn functions(program: &Path) -> Result<HashSet<u64>> {
        let output = Command::new("nm").arg(program).output()?;
        let lines = String::from_utf8(output.stdout)?;
        let function = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            matches!(words.next()?, "t" | "T" | "w" | "W" | "i").then_some(address)
        };
        let addresses: HashSet<u64> = lines.lines().filter_map(function).collect();
        if addresses.is_empty() {
            return Err(format!("{} has no symbols", program.display()).into());
        }
        Ok(addresses)
    }

    /// The functions that are used of a program, in the order of their first use, by a command with this
    /// root, for so many seconds at most.
    fn used(mut traced: Command, program: &Path, root: OsString, seconds: Option<u64>) -> Result<Vec<u64>> {
        let root = CString::new(root.into_vec())?;
        // SAFETY: system calls alone, and what they ask for ends with the process.
        unsafe {
            traced.pre_exec(move || {
                let enters = root.as_bytes() == b"/"
                    || libc::chroot(root.as_ptr()) == 0 && libc::chdir(c"/".as_ptr()) == 0;
                match enters && libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0 {
                    true => Ok(()),
                    false => Err(io::Error::last_os_error()),
                }
            });
        }
        let child = traced.spawn()?;
        let pid = child.id() as i32;
        if let Some(seconds) = seconds {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(seconds));
                // SAFETY: a signal to a process that this one has started, and has not waited for while it
                // goes on itself.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            });
        }
        let mut tracer = Tracer {
            functions: functions(program)?,
            entry: entry(program)?,
            base: 0,
            original: HashMap::new(),
            used: Vec::new(),
        };
        tracer.until_it_ends(pid)?;
        Ok(tracer.used)
    }

    /// The first instruction's address (elf(5), `e_entry`).
    fn entry(program: &Path) -> Result<u64> {
        let mut bytes = [0; 8];
        File::open(program)?.read_exact_at(&mut bytes, 24)?;
        Ok(u64::from_le_bytes(bytes))
    }

    struct Tracer {
        functions: HashSet<u64>,
        entry: u64,
        /// Where the program was loaded.
        base: u64,
        /// What is where a breakpoint is.
        original: HashMap<u64, u8>,
        used: Vec<u64>,
    }

    fn registers(process: i32) -> io::Result<libc::user_regs_struct> {
        // SAFETY: plain numbers, all of which the kernel writes.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: room for the registers of a process that is stopped and traced by this one.
        match unsafe { libc::ptrace(libc::PTRACE_GETREGS, process, 0, &raw mut registers) } {
            0 => Ok(registers),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn memory(process: i32) -> io::Result<File> {
        let path = format!("/proc/{process}/mem");
        OpenOptions::new().read(true).write(true).open(path)
    }

    impl Tracer {
        /// Lets them go on from one stop to the next until the first has ended.
        fn until_it_ends(&mut self, first: i32) -> Result<()> {
            let options = libc::PTRACE_O_TRACEFORK
                | libc::PTRACE_O_TRACEVFORK
                | libc::PTRACE_O_TRACECLONE
                | libc::PTRACE_O_TRACEEXEC
                | libc::PTRACE_O_EXITKILL;
            let mut is_traced = false;
            loop {
                let mut status = 0;
                // SAFETY: writes a number.
                let process = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
                if process <= 0 {
                    return Err("nothing was executed".into());
                }
                if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                    // What comes after it nobody waits for; it is killed with this process.
                    if process == first {
                        return Ok(());
                    }
                    continue;
                }
                let (event, stopped_by) = (status >> 16, libc::WSTOPSIG(status));
                let mut signal = 0;
                if !is_traced && process == first {
                    // It has executed the program.
                    is_traced = true;
                    // SAFETY: of a process that is stopped.
                    unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, process, 0, options) };
                    self.base = registers(process)?.rip - self.entry;
                    self.set(process)?;
                } else if event == 0 && stopped_by == libc::SIGTRAP {
                    self.hit(process)?;
                } else if event == 0 && stopped_by != libc::SIGSTOP {
                    signal = stopped_by;
                }
                // SAFETY: of a process that is stopped.
                unsafe { libc::ptrace(libc::PTRACE_CONT, process, 0, signal) };
            }
        }

        /// A breakpoint at each function.
        fn set(&mut self, process: i32) -> Result<()> {
            let memory = memory(process)?;
            for function in &self.functions {
                let mut byte = [0];
                if memory.read_exact_at(&mut byte, self.base + function).is_ok() {
                    memory.write_all_at(&[BREAK], self.base + function)?;
                    self.original.insert(*function, byte[0]);
                }
            }
            Ok(())
        }

        /// A process is at one of them: there is none any more, in this process.
        fn hit(&mut self, process: i32) -> Result<()> {
            let mut now = registers(process)?;
            let function = (now.rip - 1).wrapping_sub(self.base);
            let Some(byte) = self.original.get(&function) else {
                return Ok(());
            };
            memory(process)?.write_all_at(&[*byte], self.base + function)?;
            now.rip -= 1;
            // SAFETY: the registers of a process that is stopped.
            unsafe { libc::ptrace(libc::PTRACE_SETREGS, process, 0, &raw const now) };
            if self.functions.remove(&function) {
                self.used.push(function);
            }
            Ok(())
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(target_arch = "x86_64")]
    return traced::run();
    #[cfg(not(target_arch = "x86_64"))]
    Err("breakpoints are set on x86-64 only".into())
}
