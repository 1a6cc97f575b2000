"""What the command line and the web show alike: words, documents, and which action applies when."""
