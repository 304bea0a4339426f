export { default } from 'markdown-it';
