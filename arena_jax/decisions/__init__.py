"""The arena one decision at a time: actions, flat observation, rules, batch play."""
