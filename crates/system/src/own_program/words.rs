//! The words that what runs first knows, behind its instructions: each other page would be another read.

macro_rules! words {
    () => {
        ".ascii \"/proc/self/exe\\0/var/lib/headstart\\0starts/-\\0HEADSTART_STATE=\\0--state=\\0--state\\0run\\0--\\0trusted.headstart\\0/proc/self/status\\0\\nSeccomp:\\t0\\n\\0PATH=\\0/bin:/usr/bin\\0/bin/sh\\0--name\\0--control-every\\0/dev/null\\0headstart: cannot run the command: it cannot be executed, or is not there\\n\\0headstart: it cannot begin: a standard descriptor is closed and /dev/null is not to be opened, or a filter refuses rt_sigaction or poll\\n\\0\""
    };
}
pub(super) use words;

// Where those words begin.
pub(super) const SELF: usize = 0;
pub(super) const STATE: usize = SELF + 15;
pub(super) const STARTS: usize = STATE + 19;
pub(super) const VARIABLE: usize = STARTS + 9;
pub(super) const OPTION_WITH_VALUE: usize = VARIABLE + 17;
pub(super) const OPTION: usize = OPTION_WITH_VALUE + 9;
pub(super) const RUN: usize = OPTION + 8;
pub(super) const END_OF_OPTIONS: usize = RUN + 4;
pub(super) const WAY: usize = END_OF_OPTIONS + 3;
pub(super) const STATUS: usize = WAY + 18;
pub(super) const NO_FILTER: usize = STATUS + 18;
pub(super) const SEARCHED: usize = NO_FILTER + 13;
pub(super) const SEARCHED_ELSE: usize = SEARCHED + 6;
pub(super) const SHELL: usize = SEARCHED_ELSE + 14;
pub(super) const NAME: usize = SHELL + 8;
pub(super) const CONTROL: usize = NAME + 7;
pub(super) const NOWHERE: usize = CONTROL + 16;
pub(super) const NOT_RUN: usize = NOWHERE + 10;
pub(super) const NOT_RUN_END: usize = NOT_RUN + 74;
pub(super) const NOT_BEGUN: usize = NOT_RUN_END + 1;
pub(super) const NOT_BEGUN_END: usize = NOT_BEGUN + 136;
