"""The console and pages as a user sees them: screens as text, a real terminal, a browser."""
