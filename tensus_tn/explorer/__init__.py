"""Looking at what was learned: a page to click through, and small pictures for notebooks."""
