"""Where the project is published. The links of its page in a registry and those of notebooks are made from it."""

REPOSITORY = ""  # such as https://HOST/OWNER/fedpriv; while it is empty nothing points anywhere
