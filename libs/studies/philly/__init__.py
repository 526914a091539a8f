"""The Philly study (Jeon et al., ATC'19) of any log or trace."""
