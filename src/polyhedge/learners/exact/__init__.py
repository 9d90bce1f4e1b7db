"""The certified bound (`certificate`), the ways to it one file each, and the learner that attains it (`scenario`)."""
