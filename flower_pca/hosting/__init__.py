"""Many clients on one virtual node of a simulation: their messages and answers in one."""
