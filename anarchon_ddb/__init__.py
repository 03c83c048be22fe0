"""Serverless cron for AWS Lambda."""
