"""Where numbers come from: engines' metrics pages, own requests, load. Reads and measures; decides nothing, configures nothing."""
