"""The base of the package: errors, files, locks and seeds. It imports no other part of regard."""

VERSION = "0.2.0"
