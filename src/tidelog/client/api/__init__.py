"""Public client: what `tidelog.client` exports, over the internal packages beside this one."""
