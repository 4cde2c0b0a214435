"""The page: chat, comparison of backends, a look inside, and endpoints for programs."""
