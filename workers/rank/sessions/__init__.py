"""The session server: runs commands of people in a job's sandbox, and connects them to its ports."""
