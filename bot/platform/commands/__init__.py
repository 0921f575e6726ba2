"""The grammar of all typed commands. Wings declare their tables in it; it knows none of them."""
