// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Scope watch: sessions. The start that is a user's session has all that is executed in that user's control
 * groups, whoever has forked it: the user's manager, what that starts, and what a login screen, a console or a
 * server for logins puts there.
 */
#ifndef SESSION_H
#define SESSION_H

/* So many control groups of the current process are looked at, from its own upwards. */
#define GROUPS 10

/* The start that is the session in whose control groups the current process is, if it is recorded; else 0. */
__noinline u32 session(void)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	const struct cgroup_subsys_state *group = (const void *)BPF_CORE_READ(task, cgroups, dfl_cgrp);

	for (u32 i = 0; i < GROUPS && group; i++) {
		u64 id = BPF_CORE_READ((const struct cgroup *)group, kn, id);

		for (u32 j = 0; j < SESSIONS; j++) {
			u32 number = *(volatile u32 *)&starts.sessions[j];

			if (*(volatile u64 *)&starts.session_groups[j] == id && is_recorded(number))
				return number;
		}
		group = BPF_CORE_READ(group, parent);
	}
	return 0;
}

#endif
