"""The application: command line, tables from files, and pages of reports."""
