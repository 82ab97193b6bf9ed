"""Fine-tuning jobs in the words of OpenAI: translation both ways, and routes."""
